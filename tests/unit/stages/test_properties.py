"""Whatever the items, the shard size and the replicas: one record each, in order, counts that add up."""

import tempfile
import threading
from pathlib import Path
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_pipelines.engines.fake import FakeEngine
from batch_pipelines.jobs.claims import Worker
from batch_pipelines.stages.merge import errors_path, merge_parts
from batch_pipelines.stages.shard import ShardLimits
from tests.support.jobs import chat, infer, make_job, make_request, output_of, shard, write_input

GOOD = st.integers(0, 999).map(lambda n: chat(f"question {n}"))
REFUSED = st.just(chat("[[fake:error 400 no]]"))
DEADLY = st.just(chat("[[fake:die]]"))
SHAKY = st.just(chat("[[fake:die 1]]"))
BROKEN = st.sampled_from([b"{", b"[]", b"null", {"messages": []}, {"prompt": "of another kind"}])
# A good item first fixes the kind; one deadly item at most keeps the engine from being given up.
ITEMS = st.tuples(st.lists(GOOD | REFUSED | BROKEN, max_size=40), st.lists(DEADLY | SHAKY, max_size=1)).map(
    lambda lists: [chat("first"), *lists[0], *lists[1]]
)


@given(
    items=ITEMS,
    shard_items=st.integers(1, 9),
    replicas=st.integers(1, 3),
    in_flight=st.integers(1, 8),
    name=st.sampled_from(["out.json", "out.jsonl"]),
)
@settings(max_examples=40, deadline=None)
def test_every_item_has_one_record_in_its_place(
    items: list[Any], shard_items: int, replicas: int, in_flight: int, name: str
) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        job = make_job(folder)
        request = make_request(folder, output_data_path=str(folder / "data" / name))
        write_input(folder, items)
        manifest = shard(job, request, ShardLimits(shard_items, 2**20, 2**20))
        threads = [
            threading.Thread(
                target=infer,
                args=(job, request, manifest),
                kwargs={
                    "engine": FakeEngine(max_in_flight=in_flight),
                    "worker": Worker("run", replica, 0),
                    "replicas": replicas,
                },
            )
            for replica in range(replicas)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        summary = merge_parts(job, manifest, request.output_data_path)
        records = output_of(request)

        assert len(records) == summary.total == len(items)
        for item, record in zip(items, records, strict=True):
            text = item["messages"][0]["content"] if isinstance(item, dict) and item.get("messages") else None
            if text is not None and text.startswith(("question", "first")):
                assert record["choices"][0]["message"]["content"].endswith(f": {text}")
            elif text == "[[fake:die 1]]":
                assert "choices" in record
            else:
                assert set(record["error"]) == {"message", "type", "param", "code"}
        failed = [index for index, record in enumerate(records) if "error" in record]
        assert (summary.failed, summary.succeeded) == (len(failed), len(items) - len(failed))
        if failed:
            lines = Path(errors_path(request.output_data_path)).read_bytes().splitlines()
            assert [orjson.loads(line)["index"] for line in lines] == failed

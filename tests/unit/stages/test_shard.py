"""Sharding: every item in exactly one shard, errors by index and line, unchanged input read once."""

import gzip
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson
import pytest

from batch_pipelines.api.items import ItemKind
from batch_pipelines.api.output import ItemError
from batch_pipelines.jobs.manifest import read_manifest
from batch_pipelines.jobs.shard_files import ShardDamaged, ShardItem, read_shard
from batch_pipelines.preflight.protocol import ModelUnfit, NoPreflight
from batch_pipelines.stages.job import JobFailed
from batch_pipelines.stages.shard import shard_input
from tests.support.jobs import LIMITS, chat, make_job, make_request, shard, write_input


def items_of(job: Any, manifest: Any) -> list[ShardItem]:
    return [item for entry in manifest.shards for item in read_shard(job.store, job.folder, entry)]


def test_every_item_is_in_one_shard_in_order_with_its_line(tmp_path: Path) -> None:
    job, request = make_job(tmp_path), make_request(tmp_path)
    write_input(tmp_path, [b"", *(chat(f"q{n}") for n in range(30))])
    manifest = shard(job, request)
    items = items_of(job, manifest)
    assert [item.index for item in items] == list(range(30))
    assert [item.line for item in items] == list(range(2, 32))
    assert [item.item["messages"][0]["content"] for item in items] == [f"q{n}" for n in range(30)]
    assert [entry.first_index for entry in manifest.shards] == [0, 8, 16, 24]
    assert manifest.items == 30
    assert manifest.kind == "chat"


def test_shards_grow_with_the_job_up_to_the_limit(tmp_path: Path) -> None:
    from batch_pipelines.stages.shard import ShardLimits

    job, request = make_job(tmp_path), make_request(tmp_path)
    write_input(tmp_path, [chat("q")] * 400)
    manifest = shard(job, request, ShardLimits(max_items=64, max_bytes=2**20, max_item_bytes=2**20))
    assert [entry.items for entry in manifest.shards] == [16] * 4 + [32] * 4 + [64] * 3 + [16]


def test_broken_items_keep_their_place_with_an_error_that_says_why(tmp_path: Path) -> None:
    job, request = make_job(tmp_path), make_request(tmp_path)
    broken = [
        b'{"messages": [',
        {"messages": [{"content": "no role"}], "custom_id": "b"},
        {"prompt": "another kind", "custom_id": "c"},
        b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}',
        "a string",
    ]
    write_input(tmp_path, [chat("fine"), *broken, chat("fine too")])
    manifest = shard(job, request)
    items = items_of(job, manifest)
    assert (manifest.items, manifest.invalid) == (7, 5)
    assert [item.error is not None for item in items] == [False, True, True, True, True, True, False]
    assert all(item.error and item.error["message"] and item.error["code"] == 400 for item in items[1:6])
    assert [item.echo for item in items[2:4]] == [{"custom_id": "b"}, {"custom_id": "c"}]


def test_input_too_long_for_the_limit_is_an_item_error(tmp_path: Path) -> None:
    from batch_pipelines.stages.shard import ShardLimits

    job, request = make_job(tmp_path), make_request(tmp_path)
    write_input(tmp_path, [chat("a"), chat("b" * 5000), chat("c")])
    manifest = shard(job, request, ShardLimits(max_items=8, max_bytes=2**20, max_item_bytes=1000))
    items = items_of(job, manifest)
    assert [item.error is not None for item in items] == [False, True, False]


def test_unchanged_input_is_not_read_again(tmp_path: Path) -> None:
    job, request = make_job(tmp_path), make_request(tmp_path)
    write_input(tmp_path, [chat("a")])
    first = shard(job, request)
    assert shard(job, request).created_at == first.created_at


def test_changed_input_is_sharded_anew_under_another_fingerprint(tmp_path: Path) -> None:
    job, request = make_job(tmp_path), make_request(tmp_path)
    write_input(tmp_path, [chat("a")])
    first = shard(job, request)
    write_input(tmp_path, [chat("b")])
    os.utime(tmp_path / "data" / "input.jsonl", (1, 1))
    assert shard(job, request).fingerprint != first.fingerprint


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"labels": {"team": "x"}, "priority": "high", "data_parallelism": 4, "gpus": 2}, True),
        ({"model_config": {"model": "fake", "seed": 7}}, False),
        ({"model_config": {"model": "another"}}, False),
        ({"model_config": {"model": "fake", "seed": None}}, True),
    ],
)
def test_fingerprint_covers_what_changes_results_and_nothing_else(
    tmp_path: Path, change: dict[str, Any], same: bool
) -> None:
    write_input(tmp_path, [chat("a")])
    one = shard(make_job(tmp_path, "one"), make_request(tmp_path))
    two = shard(make_job(tmp_path, "two"), make_request(tmp_path, **change))
    assert (one.fingerprint == two.fingerprint) is same


def test_another_engine_or_other_weights_give_another_fingerprint(tmp_path: Path) -> None:
    write_input(tmp_path, [chat("a")])
    request = make_request(tmp_path)
    one = shard(make_job(tmp_path, "one"), request, engine="vllm with these weights")
    two = shard(make_job(tmp_path, "two"), request, engine="vllm with those weights")
    assert one.fingerprint != two.fingerprint


@pytest.mark.parametrize(
    "content",
    [
        [chat("a"), chat("b")],
        [{"prompt": "a"}, {"prompt": ["b", "c"]}],
        {"prompts": ["a", "b"], "max_new_tokens": 3, "temperature": 0.5},
    ],
    ids=["chat", "completion", "v1"],
)
def test_inline_content_and_the_same_items_in_a_file_give_the_same_shards(
    tmp_path: Path, content: Any
) -> None:
    path = tmp_path / "data" / "in.json.gz"
    inline = shard(make_job(tmp_path, "inline"), make_request(tmp_path, content=content))
    path.write_bytes(gzip.compress(orjson.dumps(content)))
    job = make_job(tmp_path, "file")
    from_file = shard(job, make_request(tmp_path, input_data_path=str(path)))
    assert (inline.items, inline.kind, inline.v1_header) == (
        from_file.items,
        from_file.kind,
        from_file.v1_header,
    )
    assert [item.item for item in items_of(make_job(tmp_path, "inline"), inline)] == [
        item.item for item in items_of(job, from_file)
    ]


def test_empty_array_is_a_job_of_no_items(tmp_path: Path) -> None:
    job, request = make_job(tmp_path), make_request(tmp_path)
    write_input(tmp_path, [b"[]"])
    manifest = shard(job, request)
    assert (manifest.items, manifest.shards, manifest.kind) == (0, (), None)


@pytest.mark.parametrize("data", [b"", b"<html>", b'[{"prompt": "a"}'], ids=["empty", "html", "cut off"])
def test_file_that_is_no_list_of_items_fails_the_job_and_says_so(tmp_path: Path, data: bytes) -> None:
    job, request = make_job(tmp_path), make_request(tmp_path)
    write_input(tmp_path, [])
    (tmp_path / "data" / "input.jsonl").write_bytes(data)
    with pytest.raises(JobFailed, match="input_data_path: "):
        shard(job, request)


def test_bad_v1_settings_in_a_file_fail_the_job_with_every_reason(tmp_path: Path) -> None:
    job, request = make_job(tmp_path), make_request(tmp_path)
    write_input(tmp_path, [{"prompts": ["a"], "max_new_tokens": "many", "temperature": 7}])
    with pytest.raises(JobFailed) as failure:
        shard(job, request)
    assert "max_new_tokens" in str(failure.value)
    assert "temperature" in str(failure.value)


def test_shard_file_that_changed_is_refused(tmp_path: Path) -> None:
    job, request = make_job(tmp_path), make_request(tmp_path)
    write_input(tmp_path, [chat("a")])
    manifest = shard(job, request)
    job.store.write(job.folder.shard(0, manifest.shards[0].sha256), b"{}\n")
    with pytest.raises(ShardDamaged):
        read_shard(job.store, job.folder, manifest.shards[0])


def test_input_that_is_gone_after_sharding_is_not_missed(tmp_path: Path) -> None:
    job, request = make_job(tmp_path), make_request(tmp_path)
    write_input(tmp_path, [chat("a")])
    first = shard(job, request)
    (tmp_path / "data" / "input.jsonl").unlink()
    assert shard(job, request) == first
    with pytest.raises(JobFailed, match="input_data_path"):
        shard(make_job(tmp_path, "another"), request)


def test_shards_of_another_request_in_the_same_folder_do_no_harm(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    one, two = make_request(tmp_path, content=[chat("one")]), make_request(tmp_path, content=[chat("two")])
    first = shard(job, one)
    shard(job, two)
    again = shard(job, one)
    assert again.fingerprint == first.fingerprint
    assert [item.item["messages"][0]["content"] for item in items_of(job, again)] == ["one"]


def test_items_with_long_answers_make_smaller_shards(tmp_path: Path) -> None:
    from batch_pipelines.stages.shard import ShardLimits

    limits = ShardLimits(max_items=1000, max_bytes=40_000, max_item_bytes=2**20)
    write_input(tmp_path, [chat("q", max_tokens=1000) for _ in range(40)])
    manifest = shard(make_job(tmp_path), make_request(tmp_path), limits)
    assert max(entry.items for entry in manifest.shards) < 10


class PickyPreflight(NoPreflight):
    """Refuses items that say so, and notes the others."""

    notes: Mapping[str, int] = MappingProxyType({"`top_k` is of no use here": 1})

    def check(self, kind: ItemKind, item: Any, size: int) -> ItemError | None:
        del kind, size
        if "refuse" not in orjson.dumps(item).decode():
            return None
        return ItemError(message="prompt: is refused", type="BadRequestError", param="prompt", code=400)


def test_what_the_engine_cannot_have_is_an_error_before_it_starts(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    write_input(
        tmp_path, [{"prompt": "a"}, {"prompt": "refuse", "custom_id": 7}, {"prompt": "a", "suffix": "b"}]
    )
    request = make_request(tmp_path)
    manifest = shard_input(job, request, LIMITS, engine="fake", preflight=PickyPreflight())
    items = items_of(job, manifest)
    assert [item.error and item.error["param"] for item in items] == [None, "prompt", "suffix"]
    assert items[1].echo == {"custom_id": 7}
    assert manifest.invalid == 2


def test_the_manifest_says_what_items_need_and_what_has_no_effect(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    write_input(tmp_path, [chat("a", priority=3, stream=True), chat("a", stream=True)])
    manifest = shard_input(job, make_request(tmp_path), LIMITS, engine="fake", preflight=PickyPreflight())
    assert manifest.needs.priorities
    assert manifest.warnings == (
        "`stream` has no effect, a batch answers whole (2 items)",
        "`top_k` is of no use here (1 item)",
    )
    known = read_manifest(job.store, job.folder)
    assert known is not None
    assert known.needs == manifest.needs


def test_a_v1_header_the_engine_cannot_have_fails_the_job(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    header = {"max_new_tokens": 0, "temperature": 0, "prompts": ["a"]}
    write_input(tmp_path, [header])
    with pytest.raises(JobFailed, match="max_new_tokens: must be at least 1"):
        shard(job, make_request(tmp_path))


class Unfit(NoPreflight):
    """A model that takes no chats."""

    def check(self, kind: ItemKind, item: Any, size: int) -> ItemError | None:
        del kind, item, size
        raise ModelUnfit("chats: the model has no chat template")


def test_a_model_that_cannot_answer_such_items_fails_the_job_once(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    write_input(tmp_path, [chat("a"), chat("b")])
    with pytest.raises(JobFailed, match="model_config: chats: the model has no chat template"):
        shard_input(job, make_request(tmp_path), LIMITS, engine="fake", preflight=Unfit())


class Opinionated(NoPreflight):
    """Knows which library must enforce the forms, and what a V1 header may ask."""

    structured_backend = "guidance"

    def check_v1_header(self, header: Mapping[str, Any]) -> ItemError | None:
        if header["max_new_tokens"] < 100:
            return None
        return ItemError(message="max_new_tokens: too many", type="BadRequestError", param=None, code=400)


def test_the_library_for_forms_is_the_one_the_preflight_settled_on(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    write_input(tmp_path, [chat("a", guided_regex="a", guided_decoding_backend="xgrammar")])
    manifest = shard_input(job, make_request(tmp_path), LIMITS, engine="fake", preflight=Opinionated())
    assert manifest.needs.structured_backend == "guidance"


def test_a_v1_header_the_model_cannot_have_fails_the_job(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    write_input(tmp_path, [{"max_new_tokens": 100, "temperature": 0, "prompts": ["a"]}])
    with pytest.raises(JobFailed, match="max_new_tokens: too many"):
        shard_input(job, make_request(tmp_path), LIMITS, engine="fake", preflight=Opinionated())


def test_the_deadline_is_looked_at_by_time_however_slow_items_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(tmp_path)
    write_input(tmp_path, [chat("a")] * 5)
    clock = iter(range(0, 1000, 2))
    monkeypatch.setattr("batch_pipelines.stages.shard.time.monotonic", lambda: next(clock))
    looks: list[int] = []
    shard_input(job, make_request(tmp_path), LIMITS, engine="fake", check=lambda: looks.append(1))
    assert len(looks) == 5


def test_what_a_tool_cannot_go_with_is_refused_before_an_engine_starts(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    write_input(tmp_path, [chat("a"), chat("b", n=2)])
    request = make_request(tmp_path, tool_config={"name": "code_evaluator"})
    manifest = shard_input(job, request, LIMITS, engine="fake")
    assert [item.error and item.error["param"] for item in items_of(job, manifest)] == [None, "n"]

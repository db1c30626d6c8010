"""What people's complaints say batch systems trip over: the file as a whole, and items' bytes.

Each case says its outcome. Items that only a model can judge are in `tests/integration/test_bad_items.py`.
"""

import gzip
from pathlib import Path
from typing import Any

import orjson
import pytest
import zstandard

from batch_pipelines.stages.job import JobFailed
from batch_pipelines.stages.merge import merge_parts
from batch_pipelines.stages.shard import ShardLimits
from tests.support.jobs import LIMITS, infer, make_job, make_request, output_of, shard

A = b'{"prompt": "a"}'
B = b'{"prompt": "b"}'
SEPARATORS = "a\u2028b\u2029c\u0085d\x0be\x0cf"


def run(folder: Path, data: bytes, name: str = "input.jsonl", limits: ShardLimits = LIMITS) -> list[Any]:
    """The published records of a job with this input."""
    job = make_job(folder)
    path = folder / "data" / name
    path.write_bytes(data)
    request = make_request(folder, input_data_path=str(path))
    manifest = shard(job, request, limits)
    infer(job, request, manifest)
    merge_parts(job, manifest, request.output_data_path, run_id="run")
    return list(output_of(request))


def outcomes(records: list[Any]) -> list[str | None]:
    """The field of each error, or its message where no field is at fault; None for an answer."""
    return [
        (record["error"]["param"] or record["error"]["message"]) if "error" in record else None
        for record in records
    ]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        pytest.param(b"", "holds no items", id="empty file"),
        pytest.param(b"\n\r\n \n", "holds no items", id="only blank lines"),
        pytest.param(b"17", "starts with '1'", id="a number"),
        pytest.param(b"null", "starts with 'n'", id="null"),
        pytest.param(b"prompt\na\n", "starts with 'p'", id="a table"),
        pytest.param(b"[" + A + b",", "line 1", id="an array that ends early"),
        pytest.param(gzip.compress(A * 100)[:-20], "input.jsonl", id="a damaged archive"),
    ],
)
def test_files_that_are_refused_as_a_whole(tmp_path: Path, data: bytes, told: str) -> None:
    with pytest.raises(JobFailed, match=told):
        run(tmp_path, data)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(A + b"\n" + B + b"\n", id="newline at the end"),
        pytest.param(A + b"\n" + B, id="no newline at the end"),
        pytest.param(A + b"\r\n" + B + b"\r\n", id="lines of another system"),
        pytest.param(b"\xef\xbb\xbf" + A + b"\n" + B, id="byte order mark"),
        pytest.param(A + b"\n\n \n" + B, id="blank line between"),
        pytest.param(b"[" + A + b",\n" + B + b"]", id="array"),
        pytest.param(
            orjson.dumps([orjson.loads(A), orjson.loads(B)], option=orjson.OPT_INDENT_2),
            id="array over lines",
        ),
        pytest.param(gzip.compress(A + b"\n" + B), id="gzip"),
        pytest.param(zstandard.compress(A + b"\n" + B), id="zstandard"),
        pytest.param(gzip.compress(b"[" + A + b"," + B + b"]"), id="array in gzip"),
    ],
)
def test_files_that_are_read(tmp_path: Path, data: bytes) -> None:
    records = run(tmp_path, data)
    assert outcomes(records) == [None, None]
    assert records[0]["choices"] != records[1]["choices"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        pytest.param(b"\xef\xbb\xbf" + A, "not valid JSON", id="byte order mark within"),
        pytest.param(b'{"prompt": "\xff"}', "not valid JSON", id="bytes that are no UTF-8"),
        pytest.param(b'{"prompt": "a", "temperature": NaN}', "not valid JSON", id="not a number"),
        pytest.param(b'{"prompt": "a", "temperature": Infinity}', "not valid JSON", id="infinity"),
        pytest.param(b'{"prompt": "\\ud800"}', "not valid JSON", id="half a character"),
        pytest.param(b"17", "must be a JSON object", id="a number alone"),
        pytest.param(b"null", "must be a JSON object", id="null alone"),
        pytest.param(b"[1]", "must be a JSON object", id="an array"),
        pytest.param(b'{"text": "a"}', "neither `prompt`", id="neither kind"),
        pytest.param(b'{"messages": [{"role": "user", "content": "a"}]}', "is a chat", id="another kind"),
        pytest.param(A + A, "not valid JSON", id="two objects"),
        pytest.param(b'{"prompt": "a', "not valid JSON", id="cut off"),
        pytest.param(
            b'{"prompt": "a", "x": ' + b"[" * 500 + b"]" * 500 + b"}", "nested deeper", id="nested too deeply"
        ),
        pytest.param(b'{"prompt": "' + b"a" * 5000 + b'"}', "is longer than 4096 bytes", id="too large"),
        pytest.param(b'{"prompt": "a", "max_tokens": "5"}', "max_tokens", id="whole numbers as text"),
        pytest.param(b'{"prompt": "a", "n": true}', "n", id="truth as a number"),
    ],
)
def test_one_bad_line_is_one_error_in_its_place(tmp_path: Path, line: bytes, told: str) -> None:
    limits = ShardLimits(max_items=8, max_bytes=2**20, max_item_bytes=4096)
    records = run(tmp_path, b"\n".join([A, line, B]), limits=limits)
    first, error, last = outcomes(records)
    assert (first, last) == (None, None)
    assert error is not None
    assert told in error


@pytest.mark.parametrize(
    "prompt",
    [SEPARATORS, "a\x00b", "<|im_start|>", "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16")],
)
def test_unusual_text_stays_as_it_is(tmp_path: Path, prompt: str) -> None:
    item = orjson.dumps({"prompt": prompt, "custom_id": prompt})
    (record,) = run(tmp_path, item)
    assert record["custom_id"] == prompt
    assert "error" not in record


def test_of_a_key_that_stands_twice_the_last_one_counts(tmp_path: Path) -> None:
    (record,) = run(tmp_path, b'{"prompt": "a", "custom_id": 1, "custom_id": 2}')
    assert record["custom_id"] == 2


def test_the_sender_own_ids_may_repeat_or_be_of_any_type(tmp_path: Path) -> None:
    ids = ["a", "a", "", 5, None, "x" * 2000]
    data = b"\n".join(orjson.dumps({"prompt": "a", "custom_id": each}) for each in ids)
    assert [record["custom_id"] for record in run(tmp_path, data)] == ids


def test_one_item_and_more_replicas_than_items(tmp_path: Path) -> None:
    assert outcomes(run(tmp_path, A)) == [None]

"""What a person reads of a completed job."""

from pathlib import Path

from batch_pipelines.cli.render import readable
from batch_pipelines.cli.results import describe_results
from batch_pipelines.settings import Settings
from batch_pipelines.stages.merge import Summary
from tests.support.job_records import JobRecords


def test_failed_items_are_shown_with_index_line_and_reason(settings: Settings, tmp_path: Path) -> None:
    errors = tmp_path / "errors.jsonl"
    error = '{"type":"BadRequestError","code":400,"message":"must have a role"}'
    errors.write_text(f'{{"index":19,"line":20,"error":{error}}}\n')
    records = JobRecords(settings, "j")
    records.publish(tmp_path / "out.json", errors=errors)
    summary = Summary.model_validate_json(records.store.read(records.folder.summary))
    text = describe_results(settings, summary)
    assert "2 of 3 items answered, 60 tokens written" in text
    assert "[19] failed (line 20 of the input): BadRequestError, 400\n    must have a role" in text
    assert f"output  {tmp_path / 'out.json'}\nerrors  {errors}" in text


def test_local_addresses_are_shown_as_paths() -> None:
    assert readable("file:///a%20b/c.json") == "/a b/c.json"
    assert readable("s3://b/c%20d.json") == "s3://b/c%20d.json"

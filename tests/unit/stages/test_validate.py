"""The deployment's own rules: every error at once, each by its pointer, and nothing outside the roots."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batch_pipelines.api.errors import FieldError, RequestInvalid
from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.stages.job import Job
from batch_pipelines.stages.validate import EngineFindings, Policy, check_request, read_request, store_request
from batch_pipelines.storage.object_storage import ObjectInfo, ObjectStorage, StorageError
from tests.support.jobs import chat, make_job, make_request, write_input

POLICY = Policy(allow_trust_remote_code=False, max_inline_bytes=1000)


def refuse_nothing(_: CreateBatchCompletionsV2Request) -> EngineFindings:
    return EngineFindings()


def errors_of(folder: Path, **fields: Any) -> dict[str, str]:
    try:
        check_request(make_job(folder), make_request(folder, **fields), POLICY, check_engine=refuse_nothing)
    except RequestInvalid as invalid:
        return {error.pointer: error.message for error in invalid.errors}
    return {}


def test_good_request_passes_and_leaves_nothing_beside_its_input(tmp_path: Path) -> None:
    write_input(tmp_path, [chat("a")])
    assert errors_of(tmp_path) == {}
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["input.jsonl"]


def test_every_error_is_reported_at_once(tmp_path: Path) -> None:
    errors = errors_of(
        tmp_path,
        input_data_path=str(tmp_path / "data" / "missing.jsonl"),
        output_data_path="/etc/output.json",
        model_config={"model": "m", "trust_remote_code": True},
    )
    assert set(errors) == {"/input_data_path", "/output_data_path", "/model_config/trust_remote_code"}


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "{data}/../store/job/manifest.json",
        "file:///etc/passwd",
        "s3://somebody-elses/key",
        "ftp://x/y",
        "{data}/link/passwd",
    ],
)
@pytest.mark.parametrize("field", ["input_data_path", "output_data_path"])
def test_path_outside_the_roots_is_refused(tmp_path: Path, field: str, path: str) -> None:
    write_input(tmp_path, [chat("a")])
    (tmp_path / "data" / "link").symlink_to("/etc")
    errors = errors_of(tmp_path, **{field: path.format(data=tmp_path / "data")})
    assert set(errors) == {f"/{field}"}


def test_output_must_not_be_the_input_or_a_folder(tmp_path: Path) -> None:
    write_input(tmp_path, [chat("a")])
    same = errors_of(tmp_path, output_data_path=str(tmp_path / "data" / "input.jsonl"))
    assert "is the input file" in same["/output_data_path"]
    folder = errors_of(tmp_path, output_data_path=str(tmp_path / "data") + "/")
    assert set(folder) == {"/output_data_path"}


def test_inline_content_over_the_limit_is_refused_with_both_sizes(tmp_path: Path) -> None:
    errors = errors_of(tmp_path, content=[chat("x" * 2000)])
    assert "1,000" in errors["/content"]
    assert "input_data_path" in errors["/content"]


def test_settings_the_engine_refuses_are_errors_of_the_request(tmp_path: Path) -> None:
    def refuse(_: CreateBatchCompletionsV2Request) -> EngineFindings:
        return EngineFindings([FieldError("/model_config/max_model_len", "is too long")])

    write_input(tmp_path, [chat("a")])
    with pytest.raises(RequestInvalid, match="/model_config/max_model_len: is too long"):
        check_request(make_job(tmp_path), make_request(tmp_path), POLICY, check_engine=refuse)


def test_unknown_keys_of_the_model_config_are_warnings(tmp_path: Path) -> None:
    write_input(tmp_path, [chat("a")])
    request = make_request(tmp_path, model_config={"model": "m", "labels": {"team": "x"}, "max_modl_len": 5})
    found = EngineFindings(warnings=["from the engine"])
    warnings = check_request(make_job(tmp_path), request, POLICY, check_engine=lambda _: found)
    assert len(warnings) == 3
    assert "model_config.labels is unknown" in warnings[0]
    assert "max_model_len" in warnings[1]
    assert warnings[2] == "from the engine"


def test_stored_request_is_what_was_sent_and_nothing_more(tmp_path: Path) -> None:
    job, request = make_job(tmp_path), make_request(tmp_path, labels={"team": "a"})
    store_request(job.store, job.folder, request)
    again = read_request(job)
    assert again == request
    assert again.model_fields_set == request.model_fields_set


def test_job_store_is_closed_to_requests_however_it_is_reached(tmp_path: Path) -> None:
    write_input(tmp_path, [chat("a")])
    job = make_job(tmp_path)
    open_job = Job(folder=job.folder, store=job.store, data=ObjectStorage(roots=[str(tmp_path)]))
    (tmp_path / "data" / "link").symlink_to(tmp_path / "store")
    for path in ("store/job/manifest.json", "data/link/job/parts/x.jsonl"):
        with pytest.raises(RequestInvalid, match="deployment's own"):
            check_request(
                open_job,
                make_request(tmp_path, output_data_path=str(tmp_path / path)),
                POLICY,
                check_engine=refuse_nothing,
            )


def test_protected_folders_are_closed_to_requests_and_model_folders_only_to_data(tmp_path: Path) -> None:
    write_input(tmp_path, [chat("a")])
    models, private = tmp_path / "data" / "models", tmp_path / "private"
    policy = replace(POLICY, protected_roots=[str(models)], model_roots=[str(models)])

    def errors(**fields: Any) -> set[str]:
        try:
            request = make_request(tmp_path, **fields)
            check_request(make_job(tmp_path), request, policy, check_engine=refuse_nothing)
        except RequestInvalid as invalid:
            return {error.pointer for error in invalid.errors}
        return set()

    assert errors(output_data_path=str(models / "config.json")) == {"/output_data_path"}
    assert errors(model_config={"model": "m", "checkpoint_path": str(models / "m")}) == set()
    for field in ("checkpoint_path", "tokenizer"):
        wrong = {"model": "m", field: str(private)}
        assert errors(model_config=wrong) == {f"/model_config/{field}"}
    assert errors(model_config={"model": "m", "tokenizer": "owner/name"}) == set()


def test_input_must_not_be_where_the_errors_file_goes(tmp_path: Path) -> None:
    write_input(tmp_path, [chat("a")])
    source = tmp_path / "data" / "out.json.errors.jsonl"
    (tmp_path / "data" / "input.jsonl").rename(source)
    errors = errors_of(
        tmp_path, input_data_path=str(source), output_data_path=str(tmp_path / "data" / "out.json")
    )
    assert "errors file" in errors["/output_data_path"]


def test_storage_that_fails_for_a_moment_is_not_the_requests_fault(tmp_path: Path) -> None:
    class Down(ObjectStorage):
        def head(self, uri: str) -> ObjectInfo:
            raise StorageError(f"cannot look at {uri}: 503")

    write_input(tmp_path, [chat("a")])
    job = make_job(tmp_path)
    down = Job(folder=job.folder, store=job.store, data=Down(roots=[str(tmp_path / "data")]))
    with pytest.raises(StorageError, match="503"):
        check_request(down, make_request(tmp_path), POLICY, check_engine=refuse_nothing)


def test_the_engine_is_not_asked_about_a_model_outside_the_roots(tmp_path: Path) -> None:
    def look(_: CreateBatchCompletionsV2Request) -> EngineFindings:
        raise AssertionError("the engine looked at it")

    write_input(tmp_path, [chat("a")])
    request = make_request(tmp_path, model_config={"model": "m", "checkpoint_path": "s3://somebody/else"})
    with pytest.raises(RequestInvalid, match="checkpoint_path"):
        check_request(make_job(tmp_path), request, POLICY, check_engine=look)


def test_the_hub_is_no_storage_and_can_be_closed(tmp_path: Path) -> None:
    write_input(tmp_path, [chat("a")])
    config = {"model": "m", "checkpoint_path": "hf://owner/name"}
    assert errors_of(tmp_path, model_config=config) == {}
    closed = replace(POLICY, allow_hub=False)
    request = make_request(tmp_path, model_config={"model": "m", "tokenizer": "owner/name"})
    with pytest.raises(RequestInvalid, match="has no model hub"):
        check_request(make_job(tmp_path), request, closed, check_engine=refuse_nothing)


def test_hardware_that_nobody_looks_at_is_a_warning(tmp_path: Path) -> None:
    write_input(tmp_path, [chat("a")])
    request = make_request(tmp_path, cpus=4, gpus=0)
    (warning,) = check_request(make_job(tmp_path), request, POLICY, check_engine=refuse_nothing)
    assert warning == "cpus, gpus: no effect, replicas of this deployment run on its machine as it is"
    strict = replace(POLICY, enforces_hardware=True)
    assert check_request(make_job(tmp_path), request, strict, check_engine=refuse_nothing) == []


def test_a_tool_is_refused_where_the_deployment_does_not_allow_it(tmp_path: Path) -> None:
    write_input(tmp_path, [chat("a")])
    errors = errors_of(tmp_path, tool_config={"name": "code_evaluator"})
    assert "ALLOW_CODE_EVALUATOR" in errors["/tool_config"]
    assert set(errors_of(tmp_path, tool_config={"name": "browser"})) == {"/tool_config/name"}


def test_an_unknown_priority_is_refused_with_those_there_are(tmp_path: Path) -> None:
    write_input(tmp_path, [chat("a")])
    for known in ("high", " Low", "default", "7", "-3", None):
        assert errors_of(tmp_path, priority=known) == {}
    message = errors_of(tmp_path, priority="hihg")["/priority"]
    assert message.startswith(
        "'hihg' is unknown: expected default, high, low, medium, normal, or a whole number"
    )
    assert "did you mean `high`?" in message
    own = replace(POLICY, priorities=("Urgent",))
    request = make_request(tmp_path, priority="urgent")
    assert check_request(make_job(tmp_path), request, own, check_engine=refuse_nothing) == []

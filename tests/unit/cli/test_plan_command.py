"""plan: a dry run without Dagster."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from batch_pipelines.settings import Settings
from tests.support import model_configs as known
from tests.support.fake_dagster import FakeDagster

Invoke = Callable[..., Result]

GOOD = '{"messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}'
BAD = '{"messages": [{"role": "user", "content": "hello"}], "temperature": 9}'


@pytest.fixture(autouse=True)
def _model(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of the deployment, on a machine without GPUs."""
    folder = settings.models / "tiny"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(known.QWEN25_05B))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens there


@pytest.fixture
def request_file(tmp_path: Path) -> Callable[..., str]:
    """Writes a request for two items, one of them broken."""

    def write(**fields: Any) -> str:
        (tmp_path / "in.jsonl").write_text(f"{GOOD}\n{BAD}\n")
        body = {
            "input_data_path": "in.jsonl",
            "output_data_path": "out.json",
            "model_config": {"model": "tiny"},
            **fields,
        }
        (tmp_path / "request.json").write_text(json.dumps(body))
        return "request.json"

    return write


def with_gpus(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))


def facts_in(text: str) -> dict[str, str]:
    lines = (line.split("  ", 1) for line in text.splitlines() if "  " in line)
    return {name: value.strip() for name, value in lines if name}


def test_plan_shows_what_a_request_takes_without_asking_dagster(
    invoke: Invoke, dagster: FakeDagster, settings: Settings, request_file: Callable[..., str], tmp_path: Path
) -> None:
    dagster.down = True
    result = invoke("plan", request_file(data_parallelism=2))
    facts = facts_in(result.stdout)
    assert result.exit_code == 0
    assert facts["loaded from"] == str(settings.models / "tiny")
    assert (facts["replicas"], facts["pods"], facts["GPUs in all"]) == ("2", "2", "0")
    assert (facts["items"], facts["refused items"]) == ("2 (chat)", "1")
    assert "temperature" in result.stdout
    assert dagster.asked == []
    assert not (tmp_path / "out.json").exists()


def test_plan_names_gpus_where_there_are_some(
    invoke: Invoke,
    request_file: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_gpus(tmp_path, monkeypatch)
    facts = facts_in(invoke("plan", request_file(data_parallelism=2)).stdout)
    assert (facts["GPUs a pod"], facts["GPUs in all"]) == ("1 x nvidia-ampere-a10", "2")
    assert facts["parallel sizes"] == "tensor 1, pipeline 1"


def test_plan_reads_stdin_and_prints_json(invoke: Invoke, request_file: Callable[..., str]) -> None:
    text = Path(request_file()).read_text()
    result = invoke("plan", "-", "--json", stdin=text)
    printed = json.loads(result.stdout)
    assert printed["accepted"] is True
    assert printed["model"]["parameters"] == 494_005_120
    assert printed["hardware"]["cpus"] == "7"
    assert printed["input"]["first_refused"] == [
        {
            "index": 1,
            "line": 2,
            "field": "temperature",
            "message": "temperature: must be less than or equal to 2 (got 9)",
        }
    ]


def test_hardware_that_nobody_looks_at_is_a_warning(invoke: Invoke, request_file: Callable[..., str]) -> None:
    result = invoke("plan", request_file(gpus=100))
    assert result.exit_code == 0
    assert "gpus: no effect" in result.stderr


def test_a_request_that_would_be_refused_exits_with_2_and_shows_the_rest(
    invoke: Invoke, request_file: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCH_PIPELINES_ENFORCE_HARDWARE", "true")
    file = request_file(gpus=100, model_config={"model": "tiny", "trust_remote_code": True})
    result = invoke("plan", file)
    assert result.exit_code == 2
    for pointer in ("/gpus", "/model_config/trust_remote_code"):
        assert pointer in result.stderr
    assert facts_in(result.stdout)["refused items"] == "1"
    as_json = invoke("plan", file, "--json")
    assert as_json.exit_code == 2
    printed = json.loads(as_json.stdout)
    assert (printed["accepted"], printed["hardware"]) == (False, None)
    assert {error["pointer"] for error in printed["errors"]} == {"/gpus", "/model_config/trust_remote_code"}


def test_a_request_that_is_none_lists_every_error(invoke: Invoke) -> None:
    result = invoke("plan", "-", stdin='{"model_config": {}, "gpus": -1}')
    assert result.exit_code == 2
    for pointer in ("/model_config/model", "/gpus", "/output_data_path"):
        assert pointer in result.stderr


def test_a_missing_input_is_told(invoke: Invoke, request_file: Callable[..., str]) -> None:
    result = invoke("plan", request_file(input_data_path="no-such-file.jsonl"))
    assert result.exit_code == 2
    assert "/input_data_path" in result.stderr
    assert "no such object" in result.stderr


def test_a_model_of_the_hub_is_a_guess_with_a_warning(
    invoke: Invoke, request_file: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_gpus(tmp_path, monkeypatch)
    result = invoke("plan", request_file(model_config={"model": "Qwen/Qwen2.5-7B-Instruct"}))
    assert result.exit_code == 0
    assert "a guess" in result.stdout
    assert "cannot be looked at now" in result.stderr


def test_a_checkpoint_that_tells_nothing_is_warned_of(
    invoke: Invoke, settings: Settings, request_file: Callable[..., str]
) -> None:
    file = request_file()
    (settings.models / "tiny" / "config.json").write_text("{}")
    result = invoke("plan", file)
    assert result.exit_code == 0
    assert "num_hidden_layers is missing" in result.stderr


def test_settings_without_effect_are_warned_of(invoke: Invoke, request_file: Callable[..., str]) -> None:
    file = request_file(model_config={"model": "tiny", "swap_space": 4, "frobnicate": 1})
    result = invoke("plan", file, "--json")
    assert result.exit_code == 0
    warnings = " ".join(json.loads(result.stdout)["warnings"])
    assert "swap_space" in warnings
    assert "frobnicate" in warnings


def test_the_fake_engine_needs_no_model(
    invoke: Invoke, request_file: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCH_PIPELINES_ENGINE", "fake")
    result = invoke("plan", request_file(model_config={"model": "anything"}))
    assert result.exit_code == 0
    assert "fake engine" in result.stdout

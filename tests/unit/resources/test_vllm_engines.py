"""What a request's model and settings mean for vLLM, told without starting it."""

import json
from pathlib import Path
from typing import Any

import pytest

from batch_pipelines.api.parse import parse_request
from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.engines.needs import NO_NEEDS
from batch_pipelines.engines.vllm_args import engine_args
from batch_pipelines.engines.vllm_server import VLLMServer
from batch_pipelines.hardware.gpus import load_table
from batch_pipelines.models.catalog import load_catalog
from batch_pipelines.models.checkpoints import Remotes
from batch_pipelines.models.errors import ModelNotFound, ModelUnavailable
from batch_pipelines.models.hub import Hub
from batch_pipelines.preflight.model_preflight import ModelPreflight
from resources.vllm_engines import ModelAccess, VLLMEngines
from tests.support.model_configs import QWEN25_05B
from tests.unit.preflight.model_files import write_model

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A deployment's folder of models, with one in it."""
    write_model(tmp_path / "models" / "tiny")
    (tmp_path / "models" / "tiny" / "config.json").write_text(
        json.dumps(QWEN25_05B | {"max_position_embeddings": 512})
    )
    return tmp_path


def engines(folder: Path, catalog: str = "", **changes: Any) -> VLLMEngines:
    (folder / "catalog.yaml").write_text(catalog or "models: {}")
    access: dict[str, Any] = {name: changes.pop(name) for name in ("allow_hub",) if name in changes}
    models = ModelAccess(
        models_dir=folder / "models",
        cache=folder / "cache",
        cache_bytes=10**9,
        catalog=load_catalog(folder / "catalog.yaml"),
        remotes=Remotes(Hub(endpoint=NOWHERE)),
        **access,
    )
    return VLLMEngines(models=models, hardware=load_table(), start_timeout_sec=10, **changes)


def request_for(model: str = "tiny", **fields: Any) -> CreateBatchCompletionsV2Request:
    config = {"model": model, **fields.pop("config", {})}
    return parse_request(
        {"content": [{"prompt": "a"}], "output_data_path": "/x/out", "model_config": config, **fields}
    )


def pointers(engines: VLLMEngines, request: CreateBatchCompletionsV2Request) -> set[str]:
    return {error.pointer for error in engines.check(request).errors}


def test_a_good_request_has_nothing_against_it(folder: Path) -> None:
    found = engines(folder).check(request_for(config={"max_model_len": 512}))
    assert (list(found.errors), list(found.warnings)) == ([], [])


def test_everything_the_engine_would_refuse_is_told_at_once(folder: Path) -> None:
    config = {"dtype": "float99", "max_model_len": 1000, "limit_mm_per_prompt": "many", "seed": -1}
    assert pointers(engines(folder), request_for(config=config)) == {
        "/model_config/dtype",
        "/model_config/max_model_len",
        "/model_config/seed",
        "/model_config",
    }


def test_quantization_of_a_checkpoint_that_is_not_quantized_is_refused(folder: Path) -> None:
    assert pointers(engines(folder), request_for(config={"quantization": "awq"})) == {
        "/model_config/quantization"
    }
    assert pointers(engines(folder), request_for(config={"quantization": "fp8"})) == set()


def test_a_template_of_the_request_must_compile(folder: Path) -> None:
    (error,) = engines(folder).check(request_for(config={"chat_template": "{% for %}\n"})).errors
    assert "chat_template" in error.message


def test_a_stretched_context_is_the_engines_to_judge(folder: Path) -> None:
    rope = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
    request = request_for(config={"max_model_len": 1000, "rope_scaling": rope})
    assert pointers(engines(folder), request) == set()


def test_the_older_name_is_the_one_that_is_blamed(folder: Path) -> None:
    request = request_for(config={"max_context_length": 1000})
    assert pointers(engines(folder), request) == {"/model_config/max_context_length"}


@pytest.mark.parametrize(
    ("model", "config", "pointer"),
    [
        ("no-such-model", {}, "/model_config/model"),
        ("tiny", {"checkpoint_path": "/no/such/folder"}, "/model_config/checkpoint_path"),
    ],
)
def test_a_model_that_is_nowhere_is_blamed_on_what_named_it(
    folder: Path, model: str, config: dict[str, Any], pointer: str
) -> None:
    assert pointers(engines(folder, allow_hub=False), request_for(model, config=config)) == {pointer}


def test_a_hub_that_cannot_be_reached_is_a_warning_and_checks_nothing(folder: Path) -> None:
    request = request_for("owner/name")
    found = engines(folder).check(request)
    assert list(found.errors) == []
    assert "cannot be looked at now" in " ".join(found.warnings)
    with pytest.raises(ModelUnavailable):
        engines(folder).preflight(request)


def test_a_model_without_a_tokenizer_is_refused(folder: Path) -> None:
    (folder / "models" / "tiny" / "tokenizer.json").unlink()
    (error,) = engines(folder).check(request_for()).errors
    assert "tokenizer" in error.message


def test_a_config_that_tells_nothing_is_a_warning(folder: Path) -> None:
    (folder / "models" / "tiny" / "config.json").write_text('{"model_type": "of-its-own"}')
    found = engines(folder).check(request_for())
    assert list(found.errors) == []
    assert "nothing is known" in " ".join(found.warnings)


def test_hardware_is_checked_where_it_is_enforced(folder: Path) -> None:
    request = request_for(gpus=100)
    assert pointers(engines(folder), request) == set()
    assert pointers(engines(folder, enforce_hardware=True), request) == {"/gpus"}


def test_items_are_checked_against_the_context_the_engine_will_have(folder: Path) -> None:
    with engines(folder).preflight(request_for(config={"max_model_len": 100})) as preflight:
        assert isinstance(preflight, ModelPreflight)
        item = {"prompt": "a", "max_tokens": 101}
        error = preflight.check("completion", item, 30)
        assert error is not None
        assert (error.param, "100" in error.message) == ("max_tokens", True)


CATALOG = """
models:
  nickname:
    checkpoint: {folder}/models/tiny
    engine_args: {{max_model_len: 64, tool_call_parser: hermes}}
"""


def test_the_catalogue_brings_settings_that_a_request_overrides(folder: Path) -> None:
    made = engines(folder, CATALOG.format(folder=folder), engine_args={"max_model_len": 32, "block_size": 16})
    assert pointers(made, request_for("nickname", config={"max_model_len": 1000})) == {
        "/model_config/max_model_len"
    }
    with made.ready(request_for("nickname"), NO_NEEDS, check=lambda: None, log=print) as make:
        server = make()
    assert isinstance(server, VLLMServer)
    spec = server.spec
    assert spec.model == str(folder / "models" / "tiny")
    assert spec.served_model_name == "nickname"
    assert {name: spec.defaults[name] for name in ("max_model_len", "block_size")} == {
        "max_model_len": 64,
        "block_size": 16,
    }


def test_the_engine_fetches_images_only_from_the_deployments_hosts(folder: Path) -> None:
    for hosts in ((), ("images.example.org",)):
        made = engines(folder, media_domains=hosts)
        with made.ready(request_for(), NO_NEEDS, check=lambda: None, log=print) as make:
            server = make()
            assert isinstance(server, VLLMServer)
            assert server.spec.defaults["allowed_media_domains"] == (list(hosts) or ["invalid"])


def test_a_model_that_cannot_be_had_makes_no_engine(folder: Path) -> None:
    made = engines(folder, allow_hub=False)
    request = request_for("no-such-model")
    with pytest.raises(ModelNotFound), made.ready(request, NO_NEEDS, check=lambda: None, log=print):
        pass


def test_the_identity_is_of_the_weights_and_of_what_comes_with_them(folder: Path) -> None:
    before = engines(folder).identity(request_for())
    assert engines(folder, engine_args={"dtype": "float32"}).identity(request_for()) != before
    assert engines(folder, media_domains=("a.example",)).identity(request_for()) != before
    assert engines(folder).identity(request_for()) == before
    (folder / "models" / "tiny" / "model.safetensors").write_bytes(b"other weights")
    assert engines(folder).identity(request_for()) != before


def test_the_engine_is_spread_over_the_gpus_that_a_replica_has(folder: Path) -> None:
    request = request_for(gpus=2, gpu_type="nvidia-ampere-a10", config={"num_shards": 1})
    made = engines(folder)
    hardware = made.hardware_for(request)
    with made.ready(request, NO_NEEDS, hardware, check=lambda: None, log=print) as make:
        server = make()
    assert isinstance(server, VLLMServer)
    args = engine_args(server.spec.model_config, {}).args
    assert sorted(args) == ["--pipeline-parallel-size=1", "--tensor-parallel-size=2"]

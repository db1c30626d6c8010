"""An engine whose weights lie in object storage: fetched once, checked against, and answering."""

import asyncio
from pathlib import Path

import orjson
import pytest

from batch_pipelines.api.parse import parse_request
from batch_pipelines.engines.needs import NO_NEEDS
from batch_pipelines.engines.protocol import EngineRequest
from batch_pipelines.models.smollm2 import NAME, ensure_smollm2
from batch_pipelines.settings import Settings
from resources.deployment import engines_of
from tests.support.s3 import S3Server, s3_environment

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]


def test_weights_of_a_bucket_are_fetched_once_and_served(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.create_bucket("weights")
    for path in ensure_smollm2(Settings().models).iterdir():
        s3.client().upload_file(str(path), "weights", f"models/small/{path.name}")
    request = parse_request(
        {
            "content": [{"prompt": "a"}],
            "output_data_path": "/x/out",
            "model_config": {
                "model": "small",
                "checkpoint_path": "s3://weights/models/small",
                "max_model_len": 9000,  # more than the checkpoint's 8,192, which the scaling allows
                "rope_scaling": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 100000.0},
                "max_num_seqs": 4,
                "enforce_eager": True,
            },
        }
    )
    log: list[str] = []

    async def answer_of(engine_request: EngineRequest) -> bytes:
        engine = make_engine()
        await engine.start()
        try:
            return (await engine.send(engine_request)).body
        finally:
            await engine.stop()

    with s3_environment(s3):
        monkeypatch.setenv("BATCH_PIPELINES_HOME", str(tmp_path))
        monkeypatch.setenv("BATCH_PIPELINES_ENGINE_ENV", '{"VLLM_CPU_KVCACHE_SPACE": "1"}')
        engines = engines_of(Settings())
        found = engines.check(request)
        assert (list(found.errors), list(found.warnings)) == ([], [])
        with engines.preflight(request) as preflight:
            error = preflight.check("completion", {"prompt": [10**6]}, 30)
        assert error is not None
        assert error.param == "prompt"
        with engines.ready(request, NO_NEEDS, check=lambda: None, log=log.append) as make_engine:
            body = {
                "model": "small",
                "prompt": "The capital of Japan is",
                "max_tokens": 8500,
                "temperature": 0,
            }
            body |= {"stop": [",", "."]}
            answer = asyncio.run(answer_of(EngineRequest("/v1/completions", orjson.dumps(body))))
        assert "Tokyo" in orjson.loads(answer)["choices"][0]["text"]
        fetched = sorted(path.name for path in (tmp_path / "model-cache").iterdir())
        with engines.ready(request, NO_NEEDS, check=lambda: None, log=log.append):
            assert sorted(path.name for path in (tmp_path / "model-cache").iterdir()) == fetched
    assert NAME not in orjson.loads(answer)["model"]

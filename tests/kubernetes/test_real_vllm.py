"""Real vLLM in the pods: three replicas, each its own server, one complete output."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest

from batch_pipelines.models.smollm2 import NAME
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.deployment import Services, kubernetes_deployment
from tests.kubernetes.scenarios import completed, nothing_left, replicas

pytestmark = [pytest.mark.postgres, pytest.mark.vllm, pytest.mark.timeout(1200)]

MODELS_DIR = Path(os.environ.get("BATCH_PIPELINES_HOME", ".batch-pipelines")).absolute() / "models"
ITEMS = 60


def test_three_replicas_of_a_real_model_answer_every_item(
    cluster: Cluster, services: Services, tmp_path: Path
) -> None:
    environment = {
        "BATCH_PIPELINES_ENGINE": "vllm",
        "BATCH_PIPELINES_MODELS_DIR": str(MODELS_DIR),
        "BATCH_PIPELINES_ENGINE_ARGS": orjson.dumps({"enforce_eager": True, "max_model_len": 512}).decode(),
        "BATCH_PIPELINES_ENGINE_ENV": orjson.dumps(
            {
                "VLLM_CPU_KVCACHE_SPACE": "1",
                "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                "OMP_NUM_THREADS": "1",
            }
        ).decode(),
        "BATCH_PIPELINES_SHARD_MAX_ITEMS": "4",
    }
    items = [
        {
            "messages": [{"role": "user", "content": f"Name the capital of France. ({n})"}],
            "max_tokens": 24,
            "temperature": 0,
            "n_of": n,
        }
        for n in range(ITEMS)
    ]
    with kubernetes_deployment(cluster, tmp_path / "vllm", services, environment) as site:
        job_id = site.submit(
            "vllm",
            items,
            model_config={"model": NAME, "max_num_seqs": 2},
            data_parallelism=3,
            gpus=1,
            gpu_type="nvidia-hopper-h100",
            memory="8Gi",
        )
        completed(site, job_id, within_sec=900.0)
        records = site.records("vllm")
        assert [record["n_of"] for record in records] == list(range(ITEMS))
        answers = [record["choices"][0]["message"]["content"] for record in records]
        assert sum("Paris" in answer for answer in answers) > ITEMS / 2
        assert len(replicas(site, job_id)) == 3
        assert sum(report.engine_starts for report in site.reports(job_id)) == 3
        nothing_left(site, job_id)

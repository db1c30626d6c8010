"""The launch config takes a request's own JSON, refuses typos, and never reads the environment."""

from typing import Any

import dagster as dg
import pytest

from batch_pipelines.definitions import build_defs
from batch_pipelines.run_config import ASSET, JOB
from batch_pipelines.settings import Settings

SMALLEST: dict[str, Any] = {
    "output_data_path": "out.json",
    "input_data_path": "in.jsonl",
    "model_config": {"model": "m"},
}


@pytest.fixture(scope="module")
def job() -> dg.JobDefinition:
    return build_defs(Settings(engine="fake")).resolve_job_def(JOB)


def launch(job: dg.JobDefinition, request: Any) -> Any:
    return dg.validate_run_config(job, {"ops": {ASSET: {"config": request}}})


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"labels": None, "content": None, "cpus": None, "gpu_type": None, "tool_config": None, "gpus": None},
        {"cpus": "500m", "memory": 1.5, "storage": 10, "gpus": 1, "gpu_type": "nvidia-hopper-h100-1g20gb"},
        {"labels": {"team": "a"}, "data_parallelism": 4, "max_runtime_sec": 60, "priority": "high"},
        {
            "model_config": {
                "model": "m",
                "labels": {"x": "y"},
                "rope_scaling": {"factor": 2.0, "x": None},
                "seed": None,
            }
        },
        {"content": [{"messages": [{"role": "user", "content": None}], "n": None}]},
        {"content": {"prompts": ["a"], "max_new_tokens": 1, "temperature": 0}},
    ],
)
def test_request_is_taken_as_it_is(job: dg.JobDefinition, more: dict[str, Any]) -> None:
    launch(job, {**SMALLEST, **more})


@pytest.mark.parametrize(
    "more",
    [
        {"outptu_data_path": "x"},
        {"gpu_type": "some-other-gpu"},
        {"data_parallelism": "many"},
        {"model_config": {}},
        {"output_data_path": {"env": "HOME"}},
        {"model_config": {"model": {"env": "HOME"}}},
    ],
)
def test_wrong_structure_is_refused_at_launch(job: dg.JobDefinition, more: dict[str, Any]) -> None:
    with pytest.raises(dg.DagsterInvalidConfigError):
        launch(job, {**SMALLEST, **more})


@pytest.mark.parametrize("resource", ["job_store", "engines", "io_manager"])
def test_launch_cannot_change_what_the_deployment_decides(job: dg.JobDefinition, resource: str) -> None:
    config = {"ops": {ASSET: {"config": SMALLEST}}, "resources": {resource: {"config": {"roots": ["/"]}}}}
    with pytest.raises(dg.DagsterInvalidConfigError):
        dg.validate_run_config(job, config)

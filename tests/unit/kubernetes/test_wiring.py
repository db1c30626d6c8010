"""What a deployment on a cluster has that a local one has not."""

from pathlib import Path

import dagster as dg
import pytest

from batch_pipelines.definitions import build_defs
from batch_pipelines.run_config import ASSET, INFERENCE_OP, JOB
from batch_pipelines.settings import Settings


def definitions(folder: Path, executor: str) -> dg.Definitions:
    return build_defs(Settings(home=folder, engine="fake", executor=executor))


def test_pods_of_the_op_that_infers_are_named_by_a_node_of_the_graph(tmp_path: Path) -> None:
    job = definitions(tmp_path, "kubernetes").resolve_job_def(JOB)
    (graph,) = (node for node in job.nodes if node.name == ASSET)
    assert isinstance(graph.definition, dg.GraphDefinition)
    assert INFERENCE_OP in {node.name for node in graph.definition.nodes}


def test_whoever_launches_cannot_configure_the_executor(tmp_path: Path) -> None:
    job = definitions(tmp_path, "kubernetes").resolve_job_def(JOB)
    request = {"content": [], "output_data_path": "/out", "model_config": {"model": "fake"}}
    config = {"ops": {ASSET: {"config": request}}}
    dg.validate_run_config(job, config)
    image = {"execution": {"config": {"job_image": "evil"}}}
    with pytest.raises(dg.DagsterInvalidConfigError, match="job_image"):
        dg.validate_run_config(job, config | image)


def test_only_a_cluster_needs_the_sensor_that_ends_leftovers(tmp_path: Path) -> None:
    assert not list(definitions(tmp_path, "local").sensors or [])
    (sensor,) = definitions(tmp_path, "kubernetes").sensors or []
    assert isinstance(sensor, dg.SensorDefinition)
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    with dg.DagsterInstance.ephemeral() as instance:
        skipped = sensor(dg.build_sensor_context(instance=instance))
    assert isinstance(skipped, dg.SkipReason)
    assert "no pods" in (skipped.skip_message or "")

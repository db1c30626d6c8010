"""The one asset: a partition is a request, its materialization is the request's output file."""

from typing import Any

import dagster as dg

from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.config_schema import config_shape
from batch_pipelines.ops import merge_outputs, run_inference, shard_inputs, validate_request
from batch_pipelines.partitions import batch_requests
from batch_pipelines.run_config import ASSET

__all__ = ["batch_completions"]


@dg.config_mapping(config_schema=config_shape(CreateBatchCompletionsV2Request))
def request_to_ops(request: dict[str, Any]) -> dict[str, Any]:
    """The launch config is the request's own JSON, for the first op."""
    return {validate_request.name: {"config": request}}


@dg.graph_asset(
    name=ASSET,
    partitions_def=batch_requests,
    config=request_to_ops,
    group_name="batches",
    kinds={"vllm"},
    description="One batch-completions request: its items' answers, in input order, in one output file.",
)
def batch_completions() -> dict[str, Any]:
    """Validate, shard, infer in replicas, merge."""
    validated = validate_request()
    replicas = shard_inputs(validated).map(run_inference)
    return merge_outputs(validated, replicas.collect())  # type: ignore[no-any-return]

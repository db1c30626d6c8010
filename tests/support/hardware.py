"""Requests and facts for tests of hardware."""

from collections.abc import Mapping
from typing import Any

from batch_pipelines.api.parse import parse_request
from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.models.checkpoint_facts import CheckpointFacts, facts_from_config


def make_request(*, model: str = "m", config: Mapping[str, Any] | None = None, **fields: Any) -> (
    CreateBatchCompletionsV2Request
):  # fmt: skip
    """A request; `config` adds to its `model_config`."""
    source = {"input_data_path": "/data/in.jsonl", "output_data_path": "/data/out.json"}
    return parse_request({**source, "model_config": {"model": model, **(config or {})}, **fields})


def facts_of(config: Mapping[str, Any]) -> CheckpointFacts:
    """Facts of a model by its configuration alone."""
    return facts_from_config(config, weight_bytes=None)

"""Fingerprints: two pieces of work are interchangeable only if these agree.

What changes a result belongs in the digest: the model and its configuration, the tool
configuration, the engine and its deployment-wide arguments, and the items. Where the output goes,
how many replicas run and on which hardware does not.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from batch_pipelines.api.request import CreateBatchCompletionsV2Request

__all__ = ["fingerprint_of", "request_digest", "settings_digest"]

_RECORD_VERSION = 2
"""Raise it when the same engine reply would be recorded differently."""


def settings_digest(
    request: CreateBatchCompletionsV2Request,
    *,
    engine: str,
    v1_header: Mapping[str, Any] | None,
) -> str:
    """Digest of everything but the items that changes results, in hexadecimal.

    Args:
        request: The job's request; unset fields and nulls count as the same.
        engine: What tells the deployment's engine and its weights from any other.
        v1_header: Sampling fields of a V1 input.
    """
    asked = request.model_dump(
        mode="json",
        by_alias=True,
        exclude_none=True,
        exclude_unset=True,
        include={"engine_config", "tool_config"},
    )
    return _digest(
        {
            "records": _RECORD_VERSION,
            "asked": asked,
            "engine": engine,
            "v1_header": dict(v1_header) if v1_header is not None else None,
        }
    )


def request_digest(request: CreateBatchCompletionsV2Request) -> str:
    """Digest of a whole request: two steps that see different ones do not work on the same thing."""
    return _digest(request.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True))


def fingerprint_of(digest: str, shard_hashes: Iterable[str]) -> str:
    """Fingerprint of a job: its `settings_digest` and the hashes of its shards, in order."""
    return _digest([digest, *shard_hashes])


def _digest(value: object) -> str:
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()

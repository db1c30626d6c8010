"""How steps become processes. The request decides how many replicas; the executor, how many at once."""

from typing import Any

import dagster as dg

__all__ = ["local_executor"]


def local_executor(max_replicas: int) -> dg.ExecutorDefinition:
    """Steps as processes on this machine, at most `max_replicas` at a time.

    A job with more replicas than that still completes: the ones that run take all the shards.
    """

    @dg.configured(dg.multiprocess_executor, config_schema={})
    def batch_local_executor(_config: dict[str, Any]) -> dict[str, Any]:
        return {"max_concurrent": max_replicas}

    return batch_local_executor

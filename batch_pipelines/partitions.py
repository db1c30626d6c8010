"""The one partitions definition: a partition is a request, and its key is the job's id."""

import dagster as dg

__all__ = ["batch_requests"]

batch_requests = dg.DynamicPartitionsDefinition(name="batch_requests")

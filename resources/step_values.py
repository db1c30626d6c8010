"""The IO manager: the small values that pass between steps, as JSON in the job store.

Steps may run in pods that share no disk. Prompts and answers never pass here; stages read and
write those in the job's folder themselves.
"""

from typing import Any

import dagster as dg
import orjson

from batch_pipelines.jobs.folder import JobFolder
from batch_pipelines.storage.object_storage import ObjectStorage

__all__ = ["StepValues"]


class StepValues(dg.IOManager):
    """Keeps a step's output under its job, run and step."""

    def __init__(self, store: str) -> None:
        """See the class.

        Args:
            store: URI of the job store.
        """
        self._store = store
        self._storage = ObjectStorage(roots=[store])

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write a step's output."""
        self._storage.write(self._uri(context, context.partition_key), orjson.dumps(obj))

    def load_input(self, context: dg.InputContext) -> Any:
        """Read the output of the step upstream."""
        if context.upstream_output is None:
            raise dg.DagsterInvariantViolationError("a step's input must come from another step")
        return orjson.loads(self._storage.read(self._uri(context.upstream_output, context.partition_key)))

    def _uri(self, output: dg.OutputContext, job_id: str) -> str:
        names = [output.step_key, output.name, *([output.mapping_key] if output.mapping_key else [])]
        return JobFolder(self._store, job_id).step_output(output.run_id, names)

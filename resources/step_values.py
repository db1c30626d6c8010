"""The IO manager: the small values that pass between steps, as JSON in the job store.

Steps may run in pods that share no disk. Prompts and answers never pass here; stages read and
write those in the job's folder themselves.
"""

from typing import Any

import dagster as dg
import orjson
from pydantic import Field

from batch_pipelines.jobs.folder import JobFolder
from batch_pipelines.storage.object_storage import ObjectStorage

__all__ = ["StepValues"]


class StepValues(dg.ConfigurableIOManager):
    """Keeps a step's output under its job, run and step."""

    store: str = Field(description="URI of the job store.")

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write a step's output."""
        ObjectStorage(roots=[self.store]).write(self._uri(context, context.partition_key), orjson.dumps(obj))

    def load_input(self, context: dg.InputContext) -> Any:
        """Read the output of the step upstream."""
        if context.upstream_output is None:
            raise dg.DagsterInvariantViolationError("a step's input must come from another step")
        uri = self._uri(context.upstream_output, context.partition_key)
        return orjson.loads(ObjectStorage(roots=[self.store]).read(uri))

    def _uri(self, output: dg.OutputContext, job_id: str) -> str:
        names = [output.step_key, output.name, *([output.mapping_key] if output.mapping_key else [])]
        return JobFolder(self.store, job_id).step_output(output.run_id, names)

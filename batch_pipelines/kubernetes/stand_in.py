"""Finishes a replica's step in the run worker, in place of a pod that does not start.

It runs the very command of the pod, whose op finds that nothing is left to do, or that its replica was given
up, and returns so without an engine. Should the pod start at the same time, the second of the two finds the
step started and ends. What decides that a step needs this is `batch_pipelines.kubernetes.watch`.
"""

import os
import subprocess
from collections.abc import Mapping
from typing import Any

__all__ = ["StepProcess"]

_GRACE_SEC = 10.0


class StepProcess:
    """A step as a child process of this one."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        """Start it.

        Args:
            job: The step's Kubernetes job, as the API gives it.
        """
        container = job["spec"]["template"]["spec"]["containers"][0]
        variables = {
            variable["name"]: variable["value"]
            for variable in container.get("env") or ()
            if variable["name"].startswith("DAGSTER_") and "value" in variable
        }
        self._process = subprocess.Popen(container["args"], env={**os.environ, **variables})

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.poll()

    def stop(self) -> None:
        """End it, if it has not ended."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_GRACE_SEC)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

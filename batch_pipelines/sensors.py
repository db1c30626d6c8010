"""The sensors of a deployment."""

from collections.abc import Callable, Sequence

import dagster as dg

from batch_pipelines.settings import Settings
from batch_pipelines.stages.job import Job

__all__ = ["sensors_of"]


def sensors_of(settings: Settings, job_of: Callable[[str], Job]) -> Sequence[dg.SensorDefinition]:
    """The sensors.

    Args:
        settings: Of the deployment.
        job_of: A job's folder and storage, by its id.
    """
    if settings.executor == "local":
        return []
    # Only deployments on a cluster have what this needs installed.
    from batch_pipelines.kubernetes.sensors import leftovers_sensor

    return [leftovers_sensor(job_of)]

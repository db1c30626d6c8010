"""From a deployment's settings to what its pods need."""

from collections.abc import Callable

from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.hardware.plan import Hardware
from batch_pipelines.kubernetes.cluster_table import load_cluster_table
from batch_pipelines.kubernetes.executor import RequestPods
from batch_pipelines.kubernetes.pod_config import PodSettings
from batch_pipelines.kubernetes.watch import Patience
from batch_pipelines.settings import Settings
from batch_pipelines.stages.job import Job

__all__ = ["request_pods"]


def request_pods(
    settings: Settings,
    job: Callable[[str], Job],
    hardware_for: Callable[[Job, CreateBatchCompletionsV2Request], Hardware],
) -> RequestPods:
    """What the executor needs.

    Args:
        settings: Of the deployment.
        job: A job's folder and storage, by its id.
        hardware_for: Decides what a replica of a job's request runs on.

    Raises:
        ValueError: The deployment's table of its cluster makes no sense.
    """
    return RequestPods(
        settings=PodSettings(
            table=load_cluster_table(settings.cluster, settings.cluster_table),
            replica_image=settings.replica_image,
            service_account=settings.step_service_account,
            priority_classes=settings.priority_classes,
            pod_labels=tuple(settings.pod_labels),
            kueue_queue=settings.kueue_queue,
            ttl_sec=settings.pod_ttl_sec,
        ),
        job=job,
        hardware_for=hardware_for,
        patience=Patience(start_sec=settings.pod_start_timeout_sec),
    )

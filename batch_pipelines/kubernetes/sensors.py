"""The sensor that keeps a cluster free of what runs have left behind. What it does is in `leftovers`."""

import time
from collections.abc import Callable, Collection

import dagster as dg

from batch_pipelines.jobs.folder import InvalidJobId
from batch_pipelines.jobs.pod_notes import PodNote, write_note
from batch_pipelines.kubernetes.api import KubernetesUnavailable, RunJobs
from batch_pipelines.kubernetes.leftovers import end_leftovers
from batch_pipelines.run_config import JOB, PARTITION_TAG
from batch_pipelines.stages.job import Job

__all__ = ["leftovers_sensor"]

_INTERVAL_SEC = 30
_LINGER_SEC = 60.0
"""A run worker outlives its run by some seconds; with its pod the cluster would delete those of its steps."""


def leftovers_sensor(job_of: Callable[[str], Job]) -> dg.SensorDefinition:
    """Ends pods of runs that are over.

    Args:
        job_of: A job's folder and storage, by its id.
    """

    @dg.sensor(
        name="end_leftover_pods",
        minimum_interval_seconds=_INTERVAL_SEC,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Deletes Kubernetes jobs of runs that have ended: none may hold or wait for a GPU.",
    )
    def end_leftover_pods(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        from dagster_k8s import K8sRunLauncher  # imported where it is asked, not in each step's pod

        launcher = context.instance.run_launcher
        if not isinstance(launcher, K8sRunLauncher):
            return dg.SkipReason("this Dagster's runs are no pods")
        runs: dict[str, dg.DagsterRun] = {}

        def ended(run_ids: Collection[str]) -> list[str]:
            found = context.instance.get_run_records(filters=dg.RunsFilter(run_ids=list(run_ids)))
            for record in found:
                run = record.dagster_run
                long_ago = time.time() - (record.end_time or 0.0) >= _LINGER_SEC
                if run.job_name == JOB and run.is_finished and long_ago:
                    runs[run.run_id] = run
            return list(runs)

        def keep(run_id: str, note: PodNote) -> None:
            try:
                job = job_of(runs[run_id].tags.get(PARTITION_TAG, ""))
            except InvalidJobId:
                return  # typed by hand; such a run has no folder
            write_note(job.store, job.folder, run_id, note)

        try:
            deleted = end_leftovers(RunJobs(launcher.job_namespace), ended, keep, context.log.warning)
        except KubernetesUnavailable as error:
            return dg.SkipReason(f"the cluster cannot be looked at now: {error}")
        if deleted:
            context.log.warning(f"deleted what ended runs had left: {', '.join(deleted)}")
        return dg.SkipReason(f"{len(deleted)} Kubernetes jobs of ended runs deleted")

    return end_leftover_pods

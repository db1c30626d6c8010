"""Steps as pods: dagster-k8s' own executor, set up for the request that a run carries.

A run's pods follow from its request alone, so that it is launched the same way everywhere: nobody has to put
pod settings beside the request, nor could. What pods look like is in `batch_pipelines.kubernetes.pod_config`.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import dagster as dg

from batch_pipelines.api.errors import RequestInvalid
from batch_pipelines.api.parse import parse_request
from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.hardware.plan import Hardware
from batch_pipelines.jobs.folder import InvalidJobId
from batch_pipelines.jobs.hardware import write_hardware
from batch_pipelines.jobs.manifest import read_manifest
from batch_pipelines.jobs.parts import committed_shards
from batch_pipelines.jobs.pod_notes import PodNote, write_note
from batch_pipelines.kubernetes.api import RunJobs
from batch_pipelines.kubernetes.notebook import Notebook
from batch_pipelines.kubernetes.pod_config import (
    EVERY_STEP,
    PodSettings,
    pods_of,
    pods_without_request,
)
from batch_pipelines.kubernetes.stand_in import StepProcess
from batch_pipelines.kubernetes.watch import Patience, PodWatch
from batch_pipelines.models.errors import CheckpointRefused, ModelNotFound, ModelUnavailable
from batch_pipelines.run_config import PARTITION_TAG, request_of
from batch_pipelines.run_facts import deadline_of
from batch_pipelines.stages.job import Job

__all__ = ["RequestPods", "kubernetes_executor"]

_MAX_PODS: Final = 100
"""Steps of a run at once: all replicas a request may have, and room to spare."""
_DEADLINE_GRACE_SEC: Final = 180
"""After the time limit, for steps to stop and say why, before Kubernetes ends their pods."""
_PAUSES_SEC: Final = (2.0, 5.0, 10.0)
"""Between looks at a model whose store does not answer."""
_NO_HARDWARE: Final = Hardware(1000, 0, 2**30, 2**30, None, 1, 1, 1, ())


@dataclass(frozen=True)
class RequestPods:
    """What the executor needs of a deployment.

    Attributes:
        settings: Of its pods.
        job: A job's folder and storage, by its id.
        hardware_for: Decides what a replica of a job's request runs on.
        patience: How long pods may wait.
    """

    settings: PodSettings
    job: Callable[[str], Job]
    hardware_for: Callable[[Job, CreateBatchCompletionsV2Request], Hardware]
    patience: Patience


def kubernetes_executor(pods: RequestPods) -> dg.ExecutorDefinition:
    """Each step as a pod of its own, replicas with the hardware their request asks for."""

    @dg.executor(
        name="kubernetes",
        config_schema={},
        requirements=dg.multiple_process_executor_requirements(),
    )
    def batch_kubernetes_executor(init: dg.InitExecutorContext) -> dg.Executor:
        """Steps as pods, by the run's request."""
        return _RequestPodsExecutor(init, pods)

    return batch_kubernetes_executor


class _RequestPodsExecutor(dg.Executor):
    def __init__(self, init: dg.InitExecutorContext, pods: RequestPods) -> None:
        from dagster_k8s import K8sRunLauncher  # imported where runs are, not in each step's pod

        launcher = init.instance.run_launcher
        if not isinstance(launcher, K8sRunLauncher):
            raise dg.DagsterInvariantViolationError(
                "with the executor kubernetes, run_launcher in dagster.yaml must be K8sRunLauncher"
            )
        self._init = init
        self._pods = pods
        self._namespace = launcher.job_namespace
        self._plain = self._steps(pods_without_request(pods.settings))

    @property
    def retries(self) -> Any:
        """As dagster-k8s does."""
        return self._plain.retries

    def execute(self, plan_context: Any, execution_plan: Any) -> Iterator[dg.DagsterEvent]:
        """Run the steps as pods, and watch over them."""
        run: dg.DagsterRun = plan_context.dagster_run
        job_id = run.tags.get(PARTITION_TAG, "")
        try:
            job = self._pods.job(job_id)
            request = parse_request(request_of(dict(run.run_config)))
        except (InvalidJobId, RequestInvalid, KeyError, TypeError):
            # The first step says what is wrong; it needs no more than a small pod.
            yield from self._plain.execute(plan_context, execution_plan)
            return
        executor = self._steps(self._entries(plan_context.instance, run, job, request, plan_context.log.info))
        watch = self._watch(run, job, plan_context.log.warning)
        watch.start()
        try:
            yield from executor.execute(plan_context, execution_plan)
        finally:
            watch.stop()

    def _entries(
        self,
        instance: dg.DagsterInstance,
        run: dg.DagsterRun,
        job: Job,
        request: CreateBatchCompletionsV2Request,
        log: Callable[[str], None],
    ) -> Mapping[str, Any]:
        deadline = deadline_of(instance, run, request.runtime_seconds)
        left = request.runtime_seconds if deadline is None else deadline - time.time()
        deadline_sec = max(math.ceil(left), 1) + _DEADLINE_GRACE_SEC

        def pods(hardware: Hardware) -> Mapping[str, Any]:
            return pods_of(
                request,
                hardware,
                self._pods.settings,
                job_id=job.folder.job_id,
                deadline_sec=deadline_sec,
            )

        try:
            hardware = self._decide(job, request)
        except (RequestInvalid, ModelNotFound, CheckpointRefused):
            # The first step refuses the request, with every reason. If it does not, replicas find that their
            # hardware was never decided, and end.
            return pods(_NO_HARDWARE)
        entries = pods(hardware)
        write_hardware(job.store, job.folder, run.run_id, hardware)
        log(f"each replica takes {'; '.join(hardware.reasons)}")
        return entries

    def _decide(self, job: Job, request: CreateBatchCompletionsV2Request) -> Hardware:
        for pause in _PAUSES_SEC:
            try:
                return self._pods.hardware_for(job, request)
            except ModelUnavailable:
                time.sleep(pause)
        return self._pods.hardware_for(job, request)  # else the run fails, and is started anew

    def _steps(self, entries: Mapping[str, Any]) -> dg.Executor:
        from dagster_k8s import k8s_job_executor

        create = k8s_job_executor.executor_creation_fn
        if create is None:
            raise dg.DagsterInvariantViolationError("this dagster-k8s has no executor to create")
        config = {
            "job_namespace": self._namespace,
            "retries": {"enabled": {}},
            "max_concurrent": _MAX_PODS,
            "enable_owner_references": True,
            "step_k8s_config": EVERY_STEP,
            "per_step_k8s_config": dict(entries),
        }
        init = dg.InitExecutorContext(
            job=self._init.job,
            executor_def=k8s_job_executor,
            executor_config=config,
            instance=self._init.instance,
        )
        executor: dg.Executor = create(init)
        return executor

    def _watch(self, run: dg.DagsterRun, job: Job, log: Callable[[str], None]) -> PodWatch:
        def all_committed() -> bool:
            manifest = read_manifest(job.store, job.folder)
            return manifest is not None and len(manifest.shards) == len(
                committed_shards(job.store, job.folder, manifest.fingerprint)
            )

        def keep_note(note: PodNote) -> None:
            write_note(job.store, job.folder, run.run_id, note)

        api = RunJobs(self._namespace)
        return PodWatch(
            api,
            run.run_id,
            patience=self._pods.patience,
            notes=Notebook(api, keep_note, log, lambda: datetime.now(UTC)),
            all_committed=all_committed,
            stand_in=StepProcess,
            log=log,
        )

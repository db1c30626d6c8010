"""Job manifests of a request, made the way dagster-k8s' executor makes them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import kubernetes
import yaml  # type: ignore[import-untyped]
from dagster_k8s import K8sRunLauncher, construct_dagster_k8s_job
from dagster_k8s.container_context import K8sContainerContext
from dagster_k8s.executor import K8sStepHandler
from dagster_k8s.job import UserDefinedDagsterK8sConfig

from batch_pipelines.hardware.choose import infer_hardware
from batch_pipelines.hardware.gpus import load_table
from batch_pipelines.kubernetes.cluster_table import load_cluster_table, within_cluster
from batch_pipelines.kubernetes.pod_config import EVERY_STEP, PodSettings, pods_of
from tests.support.hardware import make_request

JOB_ID = "01JD0000000000000000000000"
IMAGE = "registry.example.com/batch-pipelines:1"
REPLICA_IMAGE = "registry.example.com/batch-pipelines-gpu:1"
STEP_ARGS = ["dagster", "api", "execute_step", "{}"]
SMALL_OPS = ("validate_request", "shard_inputs", "merge_outputs")

OPERATOR: dict[str, Any] = {
    "env_vars": ["BATCH_PIPELINES_STORE=s3://bucket/jobs"],
    "env_secrets": ["batch-pipelines"],
    "labels": {"cost-centre": "42"},
    "service_account_name": "runs",
    "image_pull_secrets": [{"name": "registry"}],
    "volumes": [{"name": "ca", "configMap": {"name": "ca"}}],
    "volume_mounts": [{"name": "ca", "mountPath": "/etc/ca"}],
    "resources": {"limits": {"cpu": "500m", "example.com/disk": "1"}, "requests": {"cpu": "250m"}},
    "scheduler_name": "bin-packer",
    "run_k8s_config": {
        "pod_spec_config": {
            "nodeSelector": {"pool": "control"},
            "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
            "tolerations": [{"key": "control", "operator": "Exists"}],
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
            ],
            "priorityClassName": "control",
            "runtimeClassName": "gvisor",
            "activeDeadlineSeconds": 60,
            "securityContext": {"fsGroup": 1000},
        },
        "pod_template_spec_metadata": {"annotations": {"mesh/inject": "false"}},
        "job_spec_config": {"ttlSecondsAfterFinished": 5, "backoffLimit": 3},
    },
}
"""What an operator may have set for run workers, some of it for them alone."""


def launcher(folder: Path, **operator: Any) -> K8sRunLauncher:
    """A run launcher with an operator's settings; no cluster is there."""
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "none", "user": {}}],
                "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}],
                "current-context": "none",
            }
        )
    )
    return K8sRunLauncher(
        dagster_home="/opt/dagster",
        instance_config_map="instance",
        postgres_password_secret="postgres",
        load_incluster_config=False,
        kubeconfig_file=str(kubeconfig),
        job_image=IMAGE,
        **{"service_account_name": "runs", **operator},
    )


def manifests(
    folder: Path,
    *,
    profile: str = "nvidia",
    operator: dict[str, Any] | None = None,
    table: Path | None = None,
    settings: dict[str, Any] | None = None,
    gpus_available: bool = True,
    **request: Any,
) -> dict[str, dict[str, Any]]:
    """The Job of each op, as it is sent to Kubernetes.

    Args:
        folder: For files that are needed meanwhile.
        profile: Of the cluster.
        operator: The run launcher's settings.
        table: A deployment's own table of its cluster.
        settings: Of the deployment, beside the table.
        gpus_available: Whether a request that says nothing of GPUs gets some.
        request: Its fields.
    """
    cluster = load_cluster_table(profile, table)
    asked = make_request(**request)
    entries = pods_of(
        asked,
        infer_hardware(asked, None, within_cluster(load_table(), cluster), gpus_available=gpus_available),
        PodSettings(cluster, **(settings or {})),
        job_id=JOB_ID,
        deadline_sec=3780,
    )
    return jobs_of(launcher(folder, **(operator or {})), entries)


def jobs_of(runs: K8sRunLauncher, entries: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What dagster-k8s makes of the executor's configuration: its own merging, its own construction."""
    handler = K8sStepHandler(
        image=None,
        container_context=K8sContainerContext(
            run_k8s_config=UserDefinedDagsterK8sConfig.from_dict(EVERY_STEP)  # type: ignore[no-untyped-call]
        ),
        load_incluster_config=False,
        kubeconfig_file=runs.kubeconfig_file,
        per_step_k8s_config=entries,
    )
    jobs = {}
    for op in entries:
        merged = handler._get_container_context(_step_of(op, runs))
        job = construct_dagster_k8s_job(
            job_config=merged.get_k8s_job_config(None, runs),
            args=STEP_ARGS,
            job_name="dagster-step-0",
            pod_name="dagster-step-0",
            component="step_worker",
            user_defined_k8s_config=merged.run_k8s_config,
            labels={"dagster/job": "batch_completions_job", "dagster/op": op, "dagster/run-id": "0"},
        )
        plain: dict[str, Any] = kubernetes.client.ApiClient().sanitize_for_serialization(job)
        jobs[op] = plain
    return jobs


def _step_of(op: str, runs: K8sRunLauncher) -> Any:
    """As much of a step's context as the merging looks at."""
    return SimpleNamespace(
        execute_step_args=SimpleNamespace(step_keys_to_execute=[op]),
        dagster_run=dg.DagsterRun(job_name="batch_completions_job"),
        instance=SimpleNamespace(run_launcher=runs),
        step_tags={op: {}},
        get_step_context=lambda key: SimpleNamespace(step=SimpleNamespace(op_name=key)),
    )


def pod_of(job: dict[str, Any]) -> dict[str, Any]:
    """The specification of a Job's pods."""
    spec: dict[str, Any] = job["spec"]["template"]["spec"]
    return spec


def container_of(job: dict[str, Any]) -> dict[str, Any]:
    """The container of a Job's pods."""
    (container,) = pod_of(job)["containers"]
    assert isinstance(container, dict)
    return container

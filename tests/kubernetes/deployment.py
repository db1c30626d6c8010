"""A whole deployment on a cluster, for tests: Dagster outside it, runs and steps in its pods, data on S3.

What the pods look like is the product's business; here is what an operator sets up around it: dagster.yaml,
the ConfigMaps and Secrets that pods take their settings from, a service account, storage.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml  # type: ignore[import-untyped]
from kubernetes import client as kubernetes_client
from kubernetes import config as kubernetes_config

from batch_pipelines.control.dagster_client import DagsterClient
from batch_pipelines.control.jobs import Jobs, JobView
from batch_pipelines.settings import Settings
from batch_pipelines.storage.object_storage import ObjectStorage
from batch_pipelines.submission import submit
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.control_plane import ControlPlane, free_port
from tests.support.deployment import RunningDeployment
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.processes import wait_until
from tests.support.s3 import S3Server, s3_environment, s3_server

__all__ = ["DEPLOY", "KubernetesDeployment", "Services", "kubernetes_deployment", "local_services"]

DEPLOY = Path(__file__).parents[2] / "deploy"

_RUN_ACCOUNT, _STEP_ACCOUNT = "batch-pipelines", "batch-pipelines-step"
_INSTANCE, _SETTINGS, _STORAGE = "dagster-instance", "batch-pipelines", "batch-pipelines-credentials"
_DATABASE = "batch-pipelines-postgresql"
_SHIPPED = ("security_context", "run_k8s_config")


@dataclass(frozen=True, slots=True)
class Services:
    """What a deployment uses beside the cluster; their addresses must be good in pods too."""

    s3: S3Server
    postgres: PostgresServer


@contextmanager
def local_services() -> Iterator[Services]:
    """Both on loopback, for pods that are processes of this machine."""
    with s3_server() as s3, postgres_server() as postgres:
        yield Services(s3, postgres)


@dataclass(frozen=True)
class KubernetesDeployment(RunningDeployment):
    """A running deployment. Inputs and outputs are objects named after their jobs."""

    cluster: Cluster
    s3: S3Server
    bucket: str
    control_plane: ControlPlane

    def submit(self, name: str, items: list[Any], **fields: Any) -> str:
        """Submit a job for these items; its input and output are named after it."""
        lines = b"".join(orjson.dumps(item) + b"\n" for item in items)
        self.s3.client().put_object(Bucket=self.bucket, Key=f"data/{name}.jsonl", Body=lines)
        request = {
            "input_data_path": f"s3://{self.bucket}/data/{name}.jsonl",
            "output_data_path": self.output_uri(name),
            "model_config": {"model": "fake"},
            **fields,
        }
        return submit(request, settings=self.settings, client=self.client)

    def output_uri(self, name: str) -> str:
        """Where a job's output is published."""
        return f"s3://{self.bucket}/data/{name}.out.json"

    def is_published(self, name: str) -> bool:
        """Whether a job's output is there."""
        return f"data/{name}.out.json" in self.s3.keys(self.bucket)

    def records(self, name: str) -> list[dict[str, Any]]:
        """The published records of a job."""
        body = self.s3.client().get_object(Bucket=self.bucket, Key=f"data/{name}.out.json")["Body"]
        records: list[dict[str, Any]] = orjson.loads(body.read())
        return records

    def cancel(self, job_id: str) -> None:
        """Ask for the end of a job, as its user does."""
        Jobs(self.client, self.settings).cancel(job_id)

    def wait_for_end(self, job_id: str, within_sec: float = 300.0) -> JobView:
        """The job once its status is final; what the cluster and Dagster say if it does not become so."""
        try:
            wait_until(lambda: self.view(job_id).is_final, within_sec=within_sec, every_sec=1.0)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.picture(job_id)}") from error
        return self.view(job_id)

    def run_selector(self, job_id: str) -> str:
        """Label selector of everything that belongs to the job's newest run."""
        return f"dagster/run-id={self.view(job_id).run.run_id}"

    def picture(self, job_id: str) -> str:
        """What is known of a job that does not do as it should."""
        view = self.view(job_id)
        pods = [
            f"{pod['metadata']['name']} {orjson.dumps(pod.get('status', {})).decode()}"
            for pod in self.cluster.pods()
        ]
        return "\n".join([str(view.job), str(view.run), *pods, self.control_plane.tails()])

    def restart_daemon(self) -> None:
        """Stop the daemon, start another and wait until it works."""
        self.control_plane.restart_daemon(self.client)


@contextmanager
def kubernetes_deployment(
    cluster: Cluster,
    folder: Path,
    services: Services,
    environment: Mapping[str, str],
    *,
    monitoring: Mapping[str, int] | None = None,
    launcher: Mapping[str, Any] | None = None,
) -> Iterator[KubernetesDeployment]:
    """Set up a deployment on a cluster and stop it in the end; its objects go with the cluster's namespace.

    Args:
        cluster: With a namespace that has no deployment yet. It may have a mapping `launcher` of what
            K8sRunLauncher is to be told for it, such as volumes, and one `environment` of variables.
        folder: For DAGSTER_HOME and logs; its path must be free, or the same folder, in pods.
        services: Storage and database; the deployment gets a bucket and a database of its own.
        environment: BATCH_PIPELINES_* variables, over those that every deployment here has.
        monitoring: Settings of Dagster's run monitoring, over the usual ones.
        launcher: Settings of K8sRunLauncher, over the usual ones.
    """
    name = f"kube-{uuid.uuid4().hex[:12]}"
    services.s3.create_bucket(name)
    database = services.postgres.new_database(name)
    variables = {
        "BATCH_PIPELINES_EXECUTOR": "kubernetes",
        "BATCH_PIPELINES_REPLICA_IMAGE": cluster.replica_image,
        "BATCH_PIPELINES_ENGINE": "fake",
        "BATCH_PIPELINES_HOME": str(folder / "home"),
        "BATCH_PIPELINES_STORE": f"s3://{name}/jobs",
        "BATCH_PIPELINES_STORAGE_ROOTS": orjson.dumps([f"s3://{name}/data"]).decode(),
        "BATCH_PIPELINES_HEARTBEAT_SEC": "1",
        "BATCH_PIPELINES_CLAIM_TTL_SEC": "8",
        "BATCH_PIPELINES_STEP_SERVICE_ACCOUNT": _STEP_ACCOUNT,
        **getattr(cluster, "environment", {}),
        **environment,
    }
    home = folder / "dagster"
    home.mkdir(parents=True)
    config = instance_config(
        database,
        name,
        run_launcher(cluster, home) | dict(launcher or {}),
        monitoring or {},
    )
    dagster_yaml = orjson.dumps(config, option=orjson.OPT_INDENT_2).decode()  # JSON is YAML
    (home / "dagster.yaml").write_text(dagster_yaml)
    create_objects(cluster, dagster_yaml, variables, services.s3, database)
    with pytest.MonkeyPatch.context() as patch, s3_environment(services.s3):
        for variable in [variable for variable in os.environ if variable.startswith("BATCH_PIPELINES_")]:
            patch.delenv(variable)
        for variable, value in variables.items():
            patch.setenv(variable, value)
        settings = Settings(dagster_url=f"http://127.0.0.1:{free_port()}")
        processes = {
            **os.environ,
            "DAGSTER_HOME": str(home),
            "DAGSTER_PG_PASSWORD": database.password,
            "DAGSTER_CURRENT_IMAGE": cluster.image,
            "PYTHONUNBUFFERED": "1",
        }
        control_plane = ControlPlane(home, processes, settings.dagster_url, settings.location)
        store = ObjectStorage(roots=[settings.job_store])
        with DagsterClient(settings.dagster_url, settings.location) as client:
            try:
                control_plane.start(client)
                yield KubernetesDeployment(
                    folder, settings, client, store, cluster, services.s3, name, control_plane
                )
            finally:
                control_plane.stop()


def instance_config(
    database: PostgresServer, bucket: str, launcher: Mapping[str, Any], monitoring: Mapping[str, int]
) -> dict[str, Any]:
    """The dagster.yaml of a deployment, with short intervals. No secret is in it."""
    return {
        "telemetry": {"enabled": False},
        "storage": {
            "postgres": {
                "postgres_db": {
                    "hostname": database.host,
                    "port": database.port,
                    "username": database.user,
                    "password": {"env": "DAGSTER_PG_PASSWORD"},
                    "db_name": database.database,
                    "scheme": "postgresql+psycopg2",
                }
            }
        },
        "compute_logs": {
            "module": "dagster_aws.s3.compute_log_manager",
            "class": "S3ComputeLogManager",
            "config": {"bucket": bucket, "prefix": "compute-logs", "skip_empty_files": True},
        },
        "run_launcher": {"module": "dagster_k8s", "class": "K8sRunLauncher", "config": dict(launcher)},
        "run_coordinator": {
            "module": "dagster.core.run_coordinator",
            "class": "QueuedRunCoordinator",
            "config": {"dequeue_interval_seconds": 1},
        },
        "concurrency": {"runs": {"max_concurrent_runs": 5}},
        "run_monitoring": {
            "enabled": True,
            "poll_interval_seconds": 3,
            "start_timeout_seconds": 180,
            "cancel_timeout_seconds": 60,
            "max_resume_run_attempts": 0,
            "free_slots_after_run_end_seconds": 5,
            **monitoring,
        },
        "run_retries": {"enabled": True, "max_retries": 0},
    }


def run_launcher(cluster: Cluster, home: Path) -> dict[str, Any]:
    """Settings of K8sRunLauncher, with what deploy/dagster.yaml has on pods themselves.

    Steps take over from it what their environment, volumes and security are.
    """
    shipped = yaml.safe_load((DEPLOY / "dagster.yaml").read_text())["run_launcher"]["config"]
    own = dict(getattr(cluster, "launcher", {}))
    return {
        "load_incluster_config": False,
        "kubeconfig_file": str(cluster.kubeconfig),
        "job_namespace": cluster.namespace,
        "service_account_name": _RUN_ACCOUNT,
        "dagster_home": str(home),
        "instance_config_map": _INSTANCE,
        "postgres_password_secret": _DATABASE,
        "env_config_maps": [_SETTINGS],
        "env_secrets": [_STORAGE],
        "image_pull_policy": "IfNotPresent",
        "labels": {"app.kubernetes.io/managed-by": "batch-pipelines-tests"},
        # Of run workers; in a real deployment they come with the code location.
        "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi", "ephemeral-storage": "1Gi"},
            "limits": {"memory": "2Gi", "ephemeral-storage": "1Gi"},
        },
        # The root file system is read-only.
        "volumes": [
            {"name": "tmp", "empty_dir": {}},
            {"name": "state", "empty_dir": {}},
            *own.pop("volumes", []),
        ],
        "volume_mounts": [
            {"name": "tmp", "mount_path": "/tmp"},
            {"name": "state", "mount_path": "/var/lib/batch-pipelines"},
            *own.pop("volume_mounts", []),
        ],
        **{name: shipped[name] for name in _SHIPPED},
        **own,
    }


def create_objects(
    cluster: Cluster,
    dagster_yaml: str,
    variables: Mapping[str, str],
    s3: S3Server,
    database: PostgresServer,
) -> None:
    """What pods refer to by name, made in the cluster's namespace."""
    made: list[tuple[str, Any]] = [
        *(("service_account", _named(name)) for name in (_RUN_ACCOUNT, _STEP_ACCOUNT)),
        ("config_map", _named(_INSTANCE, data={"dagster.yaml": dagster_yaml})),
        ("config_map", _named(_SETTINGS, data=dict(variables))),
        ("secret", _named(_STORAGE, stringData=s3.environment)),
        ("secret", _named(_DATABASE, stringData={"postgresql-password": database.password})),
    ]
    with kubernetes_config.new_client_from_config(str(cluster.kubeconfig)) as connection:
        core = kubernetes_client.CoreV1Api(connection)
        for kind, body in made:
            try:
                getattr(core, f"create_namespaced_{kind}")(cluster.namespace, body)
            except kubernetes_client.ApiException as error:
                if error.status != 409:  # service accounts may be there, with their rights
                    raise


def _named(name: str, **content: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, **content}

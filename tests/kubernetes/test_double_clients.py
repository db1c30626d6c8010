"""The double's own: dagster-k8s and kubectl work with it."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import time
from typing import Any

import kubernetes.client
import pytest
from dagster_k8s.client import DagsterKubernetesClient

from tests.kubernetes.double.cluster import DoubleCluster
from tests.kubernetes.plain_jobs import Clients
from tests.support.processes import wait_until


def test_dagsters_client_starts_watches_and_deletes_jobs(double: DoubleCluster, on_double: Clients) -> None:
    untyped: Any = DagsterKubernetesClient
    dagster = untyped(
        on_double.batch, on_double.core, logging.getLogger(), lambda _: time.sleep(0.1), time.time
    )
    body = kubernetes.client.V1Job(**_as_arguments(on_double))
    dagster.create_namespaced_job_with_retries(body=body, namespace=on_double.namespace)
    dagster.wait_for_job_success("from-dagster", on_double.namespace, wait_timeout=20)
    (pod,) = dagster.get_pod_names_in_job("from-dagster", on_double.namespace)
    assert dagster.retrieve_pod_logs(pod, on_double.namespace).strip() == "hello"
    assert "Succeeded" in dagster.get_pod_debug_info(pod, on_double.namespace)
    assert dagster.delete_job("from-dagster", on_double.namespace)
    wait_until(lambda: not double.pods() and not double.jobs())
    assert not double.rejected


def _as_arguments(on_double: Clients) -> dict[str, object]:
    manifest = on_double.manifest("from-dagster", "echo hello")
    return {
        "api_version": manifest["apiVersion"],
        "kind": manifest["kind"],
        "metadata": manifest["metadata"],
        "spec": manifest["spec"],
    }


# No dependency of the project brings kubectl; what it asks is asked through the client above too.
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")
def test_kubectl_gets_describes_logs_and_deletes(double: DoubleCluster, on_double: Clients) -> None:
    name = on_double.start("echo hello; exit 3")
    on_double.wait_for_end(name)

    def kubectl(*arguments: str) -> str:
        environment = {
            **os.environ,
            "KUBECONFIG": str(double.kubeconfig),
            "HOME": str(double.kubeconfig.parent),
        }
        done = subprocess.run(
            ["kubectl", "--request-timeout=20s", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    pod = on_double.pod_name(name)
    assert f"pod/{pod}" in kubectl("get", "jobs,pods,nodes,events")
    assert kubectl("get", "pod", pod, "--output=jsonpath={.status.phase}") == "Failed"
    assert "BackoffLimitExceeded" in kubectl("describe", "job", name)
    assert "Exit Code:    3" in kubectl("describe", "pod", pod)
    assert kubectl("logs", f"job/{name}") == "hello\n"
    kubectl("delete", "job", name, "--wait=true")
    wait_until(lambda: not double.pods())

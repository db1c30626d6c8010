"""Pods lost and API calls failed, in every phase of a job: it completes, complete, and leaves no pod.

The cells run side by side, since most of their time is waiting for Dagster to notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from batch_pipelines.run_config import INFERENCE_OP
from tests.kubernetes.cluster import (
    ApiError,
    Cluster,
    DroppedConnection,
    HttpFault,
    LostAnswer,
    SlowApi,
)
from tests.kubernetes.deployment import KubernetesDeployment, Services, kubernetes_deployment
from tests.kubernetes.plain_jobs import needs
from tests.kubernetes.scenarios import (
    SLOW_ENGINE,
    assert_complete,
    catch,
    catch_run_worker,
    completed,
    nothing_left,
)
from tests.support.deployment import chats

pytestmark = pytest.mark.postgres

SIDE_BY_SIDE = 4
SMALL: dict[str, Any] = {"gpus": 0, "cpus": "500m", "memory": "2Gi", "storage": "1Gi"}
ITEMS = 100


@dataclass(frozen=True)
class Cell:
    """One fault in one phase.

    Attributes:
        fault: What happens, by the cluster's name of it.
        phase: The op at work then; with `+` behind it, once something is committed.
        at: Whose pod is hit.
    """

    fault: str
    phase: str
    at: str = "step"

    def __str__(self) -> str:
        return f"{self.fault}-{self.at}-{self.phase}".replace("_", "-").replace("+", "-mid")

    @property
    def op(self) -> str:
        return self.phase.removesuffix("+")

    @property
    def commits(self) -> int:
        return 2 if self.phase.endswith("+") else 0


_OPS = ("validate_request", "shard_inputs", INFERENCE_OP, f"{INFERENCE_OP}+", "merge_outputs")
CELLS = [
    *(Cell(fault, op) for fault in ("evict", "oom", "kill-process") for op in _OPS),
    *(Cell("evict", op, "run-worker") for op in _OPS),
]
_ALWAYS = {
    Cell("evict", "shard_inputs"),
    Cell("oom", f"{INFERENCE_OP}+"),
    Cell("kill-process", "merge_outputs"),
    Cell("evict", f"{INFERENCE_OP}+", "run-worker"),
}
"""One of each kind; the others take long, and are marked for `make test-faults`."""


@pytest.fixture(scope="module")
def site(
    cluster: Cluster, services: Services, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KubernetesDeployment]:
    folder = tmp_path_factory.mktemp("faults")
    with kubernetes_deployment(cluster, folder, services, SLOW_ENGINE) as site:
        yield site


@pytest.fixture(scope="module")
def outcomes(
    site: KubernetesDeployment, request: pytest.FixtureRequest
) -> Iterator[dict[Cell, Future[None]]]:
    wanted = [item.callspec.params.get("cell") for item in request.session.items if hasattr(item, "callspec")]
    able = [cell for cell in CELLS if cell in wanted and cell.fault in site.cluster.can]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        yield {cell: pool.submit(_strike, site, cell) for cell in able}


def _strike(site: KubernetesDeployment, cell: Cell) -> None:
    name = str(cell)
    job_id = site.submit(name, chats(ITEMS, name), data_parallelism=2, **SMALL)
    pod = catch(site, job_id, cell.op, commits=cell.commits)
    if cell.at == "run-worker":
        pod = catch_run_worker(site, job_id)
    _faults(site.cluster)[cell.fault](pod)
    completed(site, job_id, within_sec=400.0)
    assert_complete(site, name, ITEMS)
    nothing_left(site, job_id)


def _faults(cluster: Cluster) -> dict[str, Callable[[str], None]]:
    return {"evict": cluster.evict, "oom": cluster.oom_kill, "kill-process": cluster.kill_process}


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "cell",
    [pytest.param(cell, id=str(cell), marks=() if cell in _ALWAYS else pytest.mark.faults) for cell in CELLS],
)
def test_a_lost_pod_costs_no_more_than_a_retry(
    site: KubernetesDeployment, outcomes: dict[Cell, Future[None]], cell: Cell
) -> None:
    needs(site.cluster, cell.fault)
    outcomes[cell].result()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("phase", [INFERENCE_OP])  # the double has one node for small steps, none to spare
def test_a_lost_node_costs_no_more_than_a_retry(site: KubernetesDeployment, phase: str) -> None:
    needs(site.cluster, "node-loss")
    name = f"node-{phase}".replace("_", "-")
    job_id = site.submit(name, chats(ITEMS, name), data_parallelism=2, gpus=1, gpu_type="nvidia-hopper-h100")
    site.cluster.lose_node_of(catch(site, job_id, phase))
    completed(site, job_id, within_sec=400.0)
    assert_complete(site, name, ITEMS)
    nothing_left(site, job_id)
    site.cluster.clear_faults()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        pytest.param("post-500", ApiError(500, "POST", "/jobs$"), marks=pytest.mark.faults),
        ("post-429", ApiError(429, "POST", "/jobs$", body="run_inference")),
        ("post-lost", LostAnswer("POST", "/jobs$", body="run_inference")),
        pytest.param("get-503", ApiError(503, "GET", "/jobs", times=3), marks=pytest.mark.faults),
        pytest.param("get-dropped", DroppedConnection("GET", "/pods", times=2), marks=pytest.mark.faults),
        pytest.param("slow", SlowApi(3.0, "POST", "/jobs$"), marks=pytest.mark.faults),
    ],
)
def test_an_api_that_fails_for_a_while_costs_time_alone(
    site: KubernetesDeployment, name: str, fault: HttpFault
) -> None:
    needs(site.cluster, "api-errors")
    site.cluster.add_fault(fault)
    job_id = site.submit(name, chats(ITEMS, name), data_parallelism=2, **SMALL)
    completed(site, job_id, within_sec=400.0)
    site.cluster.clear_faults()
    assert_complete(site, name, ITEMS)
    nothing_left(site, job_id)

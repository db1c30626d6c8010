"""The double's own: faults of the API, of pods' starts, and of nodes."""

from __future__ import annotations

import time

import kubernetes.client
import pytest
import urllib3

from tests.kubernetes.cluster import (
    ApiError,
    ContainerCreationFailure,
    DroppedConnection,
    ImagePullFailure,
    LostAnswer,
    SlowApi,
    Unschedulable,
    Unsupported,
)
from tests.kubernetes.double.cluster import DoubleCluster
from tests.kubernetes.plain_jobs import WAITS_FOR_TERM, Clients
from tests.support.processes import gone, wait_until

JOBS = "/apis/batch/v1/namespaces/[^/]+/jobs$"


def status_of(error: BaseException) -> int:
    assert isinstance(error, kubernetes.client.ApiException)
    return int(error.status)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_error_strikes_as_often_as_it_should(
    double: DoubleCluster, on_double: Clients, status: int
) -> None:
    fault = ApiError(status, verb="POST", path=JOBS, times=2)
    double.add_fault(fault)
    for _ in range(2):
        with pytest.raises(kubernetes.client.ApiException) as caught:
            on_double.start("true")
        assert status_of(caught.value) == status
    assert not double.jobs()
    on_double.wait_for_end(on_double.start("true"))
    assert double.strikes(fault) == 2


def test_a_client_waits_as_long_as_it_is_told_and_asks_again(
    double: DoubleCluster, on_double: Clients
) -> None:
    fault = ApiError(429, verb="GET", path="/pods$", retry_after_sec=1)
    double.add_fault(fault)
    begun = time.monotonic()
    on_double.core.list_namespaced_pod(on_double.namespace)
    assert time.monotonic() - begun >= 1
    assert double.strikes(fault) == 1


def test_a_fault_may_be_for_one_object_by_its_body(double: DoubleCluster, on_double: Clients) -> None:
    double.add_fault(ApiError(500, verb="POST", path=JOBS, body='"team": ?"red"', times=None))
    on_double.start("true", labels={"team": "blue"})
    with pytest.raises(kubernetes.client.ApiException):
        on_double.start("true", labels={"team": "red"})


@pytest.mark.parametrize(("fault", "made"), [(LostAnswer, True), (DroppedConnection, False)])
def test_an_answer_that_is_lost_leaves_the_object(
    double: DoubleCluster, on_double: Clients, fault: type[LostAnswer | DroppedConnection], made: bool
) -> None:
    double.add_fault(fault(verb="POST", path=JOBS))
    with pytest.raises(urllib3.exceptions.HTTPError):
        on_double.batch.create_namespaced_job(on_double.namespace, on_double.manifest("lost", "true"))
    assert bool(double.jobs()) is made
    assert on_double.core.list_namespaced_pod(on_double.namespace)


def test_a_slow_api_is_slow(double: DoubleCluster, on_double: Clients) -> None:
    double.add_fault(SlowApi(0.3, verb="GET"))
    begun = time.monotonic()
    on_double.core.list_namespaced_pod(on_double.namespace)
    assert time.monotonic() - begun >= 0.3
    double.clear_faults()
    begun = time.monotonic()
    on_double.core.list_namespaced_pod(on_double.namespace)
    assert time.monotonic() - begun < 0.3


def test_a_pod_that_is_unschedulable_goes_on_when_the_fault_ends(
    double: DoubleCluster, on_double: Clients
) -> None:
    double.add_fault(Unschedulable("team=red", times=1))
    held = on_double.start("true", labels={"team": "red"})
    on_double.wait_for_event(on_double.pod_name(held), "FailedScheduling")
    assert on_double.wait_for_end(on_double.start("true", labels={"team": "red"}))[0] == "Complete"
    assert on_double.wait_for_end(on_double.start("true"))[0] == "Complete"
    assert on_double.pod(held)["status"]["phase"] == "Pending"
    double.clear_faults()
    assert on_double.wait_for_end(held)[0] == "Complete"


@pytest.mark.parametrize(
    ("fault", "reasons"),
    [
        (ImagePullFailure, ("ErrImagePull", "ImagePullBackOff")),
        (ContainerCreationFailure, ("CreateContainerError",)),
    ],
)
def test_a_container_that_cannot_start_waits_until_it_can(
    double: DoubleCluster,
    on_double: Clients,
    fault: type[ImagePullFailure | ContainerCreationFailure],
    reasons: tuple[str, ...],
) -> None:
    double.add_fault(fault("team=red"))
    name = on_double.start("true", labels={"team": "red"})
    for reason in reasons:
        on_double.wait_until_waits(name, reason)
    assert on_double.pod(name)["status"]["phase"] == "Pending"
    double.clear_faults()
    assert on_double.wait_for_end(name)[0] == "Complete"


def test_a_lost_node_takes_its_pods_after_their_toleration(double: DoubleCluster, on_double: Clients) -> None:
    toleration = {
        "key": "node.kubernetes.io/unreachable",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 1,
    }
    name = on_double.start(WAITS_FOR_TERM.format(code=0), tolerations=[toleration])
    pod = on_double.wait_until_up(name)
    (pid,) = double.pids()
    begun = time.monotonic()
    double.lose_node_of(pod)
    wait_until(lambda: gone(pid))
    assert on_double.pod(name)["status"]["phase"] == "Running"
    node = on_double.core.read_node("cpu-0")
    assert [(one.type, one.status) for one in node.status.conditions] == [("Ready", "Unknown")]
    wait_until(lambda: bool(on_double.pod(name)["metadata"].get("deletionTimestamp")))
    assert 1 <= time.monotonic() - begun < 5
    assert on_double.wait_for_end(name)[:2] == ("Failed", "BackoffLimitExceeded")
    assert not on_double.pods(name)


def test_a_lost_node_takes_no_pods_until_it_is_back(double: DoubleCluster, on_double: Clients) -> None:
    first = on_double.start(WAITS_FOR_TERM.format(code=0))
    double.lose_node_of(on_double.wait_until_up(first))
    name = on_double.start("true")
    message = on_double.wait_for_event(on_double.pod_name(name), "FailedScheduling")
    assert "1 node(s) had untolerated taint {node.kubernetes.io/unreachable: }" in message
    assert on_double.pod(first)["status"]["phase"] == "Running"
    double.clear_faults()
    assert on_double.wait_for_end(name)[0] == "Complete"
    assert on_double.wait_for_end(first)[0] == "Failed"


def test_deleting_a_pod_of_a_lost_node_waits_for_its_collection(
    double: DoubleCluster, on_double: Clients
) -> None:
    name = on_double.start(WAITS_FOR_TERM.format(code=0))
    pod = on_double.wait_until_up(name)
    double.lose_node_of(pod)
    on_double.delete_job(name)
    wait_until(lambda: bool(on_double.pod(name)["metadata"].get("deletionTimestamp")))
    assert double.live_pods() == [pod]
    wait_until(lambda: not double.live_pods())


def test_what_does_not_run_cannot_be_killed(double: DoubleCluster, on_double: Clients) -> None:
    name = on_double.start("true", nodeSelector={"nobody": "has-it"})
    for fault in (double.evict, double.oom_kill, double.kill_process, double.lose_node_of):
        with pytest.raises(Unsupported):
            fault(on_double.pod_name(name))

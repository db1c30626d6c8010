from typing import Any

import pytest

from batch_pipelines.kubernetes.pod_problems import (
    ended_badly,
    has_ended,
    job_failure,
    step_of,
    why_waiting,
)
from tests.unit.kubernetes.pods import IMAGE, job, pod, terminated, unschedulable, waiting_for_image

JOB = job()


def _disrupted(owner: dict[str, Any]) -> dict[str, Any]:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "preempting to accommodate a higher priority pod",
    }
    return pod(owner, "Failed", conditions=[condition])


@pytest.mark.parametrize(
    ("ended", "reason", "says"),
    [
        (terminated(JOB, "OOMKilled", 137), "OOMKilled", "its limit of 32Gi"),
        (terminated(JOB, "Error", 137), "Error", "exit code 137 (killed)"),
        (terminated(JOB, "Error", 143), "Error", "exit code 143 (told to end)"),
        (terminated(JOB, "Error", 1), "Error", "exit code 1"),
        (pod(JOB, "Failed", reason="Evicted", message="low on memory"), "Evicted", "low on memory"),
        (pod(JOB, "Failed", reason="DeadlineExceeded"), "DeadlineExceeded", "max_runtime_sec"),
        (pod(JOB, "Failed", reason="NodeLost"), "NodeLost", "lost with its node"),
        (_disrupted(JOB), "PreemptionByScheduler", "higher priority"),
        (pod(JOB, "Failed"), "Failed", "does not say why"),
    ],
)
def test_a_pod_that_ended_badly_says_why(ended: dict[str, Any], reason: str, says: str) -> None:
    problem = ended_badly(ended)
    assert problem is not None
    assert problem.reason == reason
    assert says in problem.message
    assert problem.disruption is (reason in ("Evicted", "NodeLost", "PreemptionByScheduler"))


@pytest.mark.parametrize("phase", ["Pending", "Running", "Succeeded"])
def test_other_pods_have_not_ended_badly(phase: str) -> None:
    assert ended_badly(pod(JOB, phase)) is None


def test_a_pod_that_no_node_takes_says_what_it_asks_for() -> None:
    problem = why_waiting(unschedulable(JOB))
    assert problem is not None
    assert problem.reason == "Unschedulable"
    assert "3 Insufficient nvidia.com/gpu" in problem.message
    assert "nvidia.com/gpu 1" in problem.message
    assert "gpu=a10" in problem.message
    assert not problem.needs_person


def test_an_image_that_cannot_be_pulled_is_named() -> None:
    problem = why_waiting(waiting_for_image(JOB))
    assert problem is not None
    assert problem.reason == "ImagePullBackOff"
    assert IMAGE in problem.message
    assert problem.needs_person


def test_a_container_being_made_is_no_reason_to_worry() -> None:
    made = pod(JOB, "Pending", state={"waiting": {"reason": "ContainerCreating"}})
    problem = why_waiting(made)
    assert problem is not None
    assert problem.reason == "ContainerCreating"
    assert not problem.needs_person
    assert why_waiting(pod(JOB, "Pending")) is None


def test_a_job_whose_pod_is_gone_has_lost_it() -> None:
    lost = job_failure(job(failed="BackoffLimitExceeded"))
    late = job_failure(job(failed="DeadlineExceeded"))
    assert lost is not None
    assert lost.reason == "PodLost"
    assert late is not None
    assert late.reason == "DeadlineExceeded"
    assert job_failure(job()) is None
    assert job_failure(job(complete=True)) is None


def test_jobs_tell_their_step_and_their_end() -> None:
    assert step_of(job("merge_outputs")) == "merge_outputs"
    assert step_of(job("")) == ""
    assert [has_ended(job()), has_ended(job(complete=True)), has_ended(job(failed="x"))] == [
        False,
        True,
        True,
    ]

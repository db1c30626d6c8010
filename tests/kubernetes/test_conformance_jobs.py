"""What a cluster does with Jobs: the same on the double and on a real one."""

from __future__ import annotations

import time

import kubernetes.client
import kubernetes.watch
import pytest

from tests.kubernetes.plain_jobs import (
    WAITS_FOR_TERM,
    Clients,
    needs,
    needs_version,
    terminated,
)
from tests.support.processes import wait_until


def test_a_job_that_succeeds_says_so_and_keeps_its_pod_and_log(kube: Clients) -> None:
    name = kube.start("echo out; echo err >&2")
    end, _, status = kube.wait_for_end(name)
    pod = kube.pod(name)
    assert (end, status["succeeded"]) == ("Complete", 1)
    assert not status.get("active")
    assert not status.get("failed")
    assert status["completionTime"]
    assert pod["status"]["phase"] == "Succeeded"
    assert terminated(pod)["reason"] == "Completed"
    assert {"PodScheduled", "Initialized", "ContainersReady", "Ready"} <= {
        condition["type"] for condition in pod["status"]["conditions"]
    }
    assert pod["metadata"]["name"].startswith(f"{name}-")
    assert len(pod["metadata"]["name"]) == len(name) + 6
    assert sorted(kube.log(pod["metadata"]["name"]).split()) == ["err", "out"]


def test_a_job_that_fails_tells_the_exit_code(kube: Clients) -> None:
    name = kube.start("echo no; exit 3")
    assert kube.wait_for_end(name)[:2] == ("Failed", "BackoffLimitExceeded")
    assert kube.job(name)["status"]["failed"] == 1
    pod = kube.pod(name)
    assert (pod["status"]["phase"], terminated(pod)["exitCode"], terminated(pod)["reason"]) == (
        "Failed",
        3,
        "Error",
    )


def test_a_killed_process_ends_with_128_and_the_signal(kube: Clients) -> None:
    needs(kube.cluster, "kill-process")
    name = kube.start(WAITS_FOR_TERM.format(code=0))
    kube.cluster.kill_process(kube.wait_until_up(name))
    kube.wait_for_end(name)
    assert (terminated(kube.pod(name))["exitCode"], terminated(kube.pod(name))["reason"]) == (137, "Error")


def test_failed_pods_are_made_anew_up_to_the_backoff_limit(kube: Clients) -> None:
    name = kube.start("exit 1", job={"backoffLimit": 1})
    assert kube.wait_for_end(name, within_sec=60)[:2] == ("Failed", "BackoffLimitExceeded")
    assert kube.job(name)["status"]["failed"] == 2
    assert len(kube.pods(name)) == 2


def test_deleting_a_job_without_a_policy_leaves_its_pods_without_owner(kube: Clients) -> None:
    name = kube.start("sleep 60")
    pod = kube.wait_for_phase(name, "Running")
    kube.delete_job(name, policy=None)
    wait_until(lambda: not kube.pod(name)["metadata"].get("ownerReferences"))
    assert kube.pod(name)["status"]["phase"] == "Running"
    kube.core.delete_namespaced_pod(pod, kube.namespace, grace_period_seconds=0)
    wait_until(lambda: not kube.pods(name))


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_deleting_a_job_ends_its_pods_with_sigterm(kube: Clients, policy: str) -> None:
    name = kube.start(WAITS_FOR_TERM.format(code=0), terminationGracePeriodSeconds=60)
    kube.wait_until_up(name)
    kube.delete_job(name, policy=policy)
    wait_until(lambda: not kube.pods(name), within_sec=30)
    wait_until(lambda: not kube.cluster.jobs(f"batch.kubernetes.io/job-name={name}"))


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace(kube: Clients) -> None:
    name = kube.start("trap '' TERM; echo up; while :; do sleep 0.05; done", terminationGracePeriodSeconds=2)
    kube.wait_until_up(name)
    begun = time.monotonic()
    kube.delete_job(name)
    wait_until(lambda: bool(kube.pod(name)["metadata"].get("deletionTimestamp")))
    wait_until(lambda: not kube.pods(name), within_sec=30)
    assert time.monotonic() - begun > 1.5


@pytest.mark.parametrize("code", [0, 1])
def test_a_pod_deleted_under_its_job_is_a_failure(kube: Clients, code: int) -> None:
    needs_version(kube, (1, 27), "its Job makes the pod anew, whatever backoffLimit says")
    name = kube.start(WAITS_FOR_TERM.format(code=code))
    pod = kube.wait_until_up(name)
    kube.core.delete_namespaced_pod(pod, kube.namespace)
    assert kube.wait_for_end(name)[:2] == ("Failed", "BackoffLimitExceeded")
    assert kube.job(name)["status"]["failed"] == 1


def test_an_evicted_pod_through_the_api_gets_its_grace(kube: Clients) -> None:
    name = kube.start(WAITS_FOR_TERM.format(code=0))
    pod = kube.wait_until_up(name)
    body = kubernetes.client.V1Eviction(metadata=kubernetes.client.V1ObjectMeta(name=pod))
    kube.core.create_namespaced_pod_eviction(pod, kube.namespace, body)
    wait_until(lambda: pod not in [one["metadata"]["name"] for one in kube.pods(name)])


def test_a_deadline_ends_a_running_job(kube: Clients) -> None:
    name = kube.start(WAITS_FOR_TERM.format(code=0), job={"activeDeadlineSeconds": 2})
    assert kube.wait_for_end(name)[:2] == ("Failed", "DeadlineExceeded")
    wait_until(lambda: not kube.cluster.live_pods(f"job-name={name}"))


def test_a_deadline_ends_a_job_that_never_started(kube: Clients) -> None:
    name = kube.start("true", job={"activeDeadlineSeconds": 1}, nodeSelector={"nobody": "has-it"})
    assert kube.wait_for_end(name)[:2] == ("Failed", "DeadlineExceeded")
    wait_until(lambda: not kube.pods(name))


def test_a_finished_job_goes_with_its_pods_after_its_time(kube: Clients) -> None:
    name = kube.start("true", job={"ttlSecondsAfterFinished": 1})
    wait_until(lambda: not kube.pods(name) and not _exists(kube, name), within_sec=30)


def _exists(kube: Clients, name: str) -> bool:
    found = kube.batch.list_namespaced_job(kube.namespace, field_selector=f"metadata.name={name}").items
    return bool(found)


def test_what_an_object_owns_goes_with_it(kube: Clients) -> None:
    owner = kube.start("sleep 60", terminationGracePeriodSeconds=1)
    owning_pod = kube.pod(owner)["metadata"]
    reference = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": owning_pod["name"],
        "uid": owning_pod["uid"],
    }
    manifest = kube.manifest(f"{owner}-owned", "sleep 60", terminationGracePeriodSeconds=1)
    manifest["metadata"]["ownerReferences"] = [reference]
    kube.batch.create_namespaced_job(kube.namespace, manifest)
    kube.wait_for_phase(f"{owner}-owned", "Running")
    kube.delete_job(owner)
    wait_until(lambda: not _exists(kube, f"{owner}-owned") and not kube.pods(f"{owner}-owned"), within_sec=60)


def test_indexed_jobs_number_their_pods(kube: Clients) -> None:
    needs_version(kube, (1, 28), "the index is no label")
    name = kube.start(
        'echo "$JOB_COMPLETION_INDEX $HOSTNAME"',
        job={"completionMode": "Indexed", "completions": 3, "parallelism": 3},
    )
    assert kube.wait_for_end(name)[0] == "Complete"
    status = kube.job(name)["status"]
    assert (status["succeeded"], status["completedIndexes"]) == (3, "0-2")
    index = "batch.kubernetes.io/job-completion-index"
    for pod in kube.pods(name):
        metadata = pod["metadata"]
        number = metadata["annotations"][index]
        assert metadata["labels"][index] == number
        assert metadata["name"].startswith(f"{name}-{number}-")
        assert kube.log(metadata["name"]).split() == [number, f"{name}-{number}"]


def test_one_failure_ends_an_indexed_job_without_retries(kube: Clients) -> None:
    needs_version(kube, (1, 24), "there are no Indexed Jobs")
    script = f'test "$JOB_COMPLETION_INDEX" = 1 && exit 4; {WAITS_FOR_TERM.format(code=0)}'
    name = kube.start(script, job={"completionMode": "Indexed", "completions": 3, "parallelism": 3})
    assert kube.wait_for_end(name)[:2] == ("Failed", "BackoffLimitExceeded")
    assert not kube.cluster.live_pods(f"job-name={name}")


def test_a_suspended_job_has_no_pods_until_it_is_resumed(kube: Clients) -> None:
    needs_version(kube, (1, 24), "Jobs cannot be suspended")
    name = kube.start("true", job={"suspend": True})
    wait_until(lambda: bool(kube.job(name)["status"].get("conditions")))
    assert [one["type"] for one in kube.job(name)["status"]["conditions"]] == ["Suspended"]
    assert not kube.pods(name)
    kube.batch.patch_namespaced_job(name, kube.namespace, {"spec": {"suspend": False}})
    assert kube.wait_for_end(name)[0] == "Complete"


def test_an_evicted_pod_fails_its_job(kube: Clients) -> None:
    needs(kube.cluster, "evict")
    # A real kubelet evicts a pod only for a limit that it exceeds.
    limit = {"resources": {"limits": {"ephemeral-storage": "64Mi"}}}
    name = kube.start(WAITS_FOR_TERM.format(code=0), container=limit)
    pod = kube.wait_until_up(name)
    kube.cluster.evict(pod)
    assert kube.wait_for_end(name)[0] == "Failed"
    assert (kube.pod(name)["status"]["phase"], kube.pod(name)["status"]["reason"]) == ("Failed", "Evicted")


def test_a_container_killed_for_memory_says_so(kube: Clients) -> None:
    needs(kube.cluster, "oom")
    limits = {"limits": {"memory": "64Mi", "cpu": "1"}}
    name = kube.start(WAITS_FOR_TERM.format(code=0), container={"resources": limits})
    kube.cluster.oom_kill(kube.wait_until_up(name))
    assert kube.wait_for_end(name)[0] == "Failed"
    assert (terminated(kube.pod(name))["exitCode"], terminated(kube.pod(name))["reason"]) == (
        137,
        "OOMKilled",
    )

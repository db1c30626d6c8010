"""What a cluster does with requests, logs and pods' starts: the same on the double and on a real one."""

from __future__ import annotations

from typing import Any

import kubernetes.client
import kubernetes.watch
import pytest

from tests.kubernetes.plain_jobs import (
    Clients,
    refused,
    terminated,
)
from tests.support.processes import wait_until


def test_names_are_taken_once_and_missing_ones_are_not_found(kube: Clients) -> None:
    name = kube.start("true")
    with refused() as refusal:
        kube.batch.create_namespaced_job(kube.namespace, kube.manifest(name, "true"))
    assert refusal()[:2] == (409, "AlreadyExists")
    with refused() as refusal:
        kube.batch.read_namespaced_job_status("nobody", kube.namespace)
    assert refusal()[:2] == (404, "NotFound")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"metadata": {"name": "x", "labels": {"a": "b c"}}}, "metadata.labels"),
        ({"metadata": {"name": "Upper"}}, "metadata.name"),
        ({"metadata": {"name": "x" * 64}}, "63"),
    ],
)
def test_bad_names_and_labels_are_invalid(kube: Clients, change: dict[str, Any], word: str) -> None:
    with refused() as refusal:
        kube.batch.create_namespaced_job(kube.namespace, {**kube.manifest("x", "true"), **change})
    assert refusal()[:2] == (422, "Invalid")
    assert word in refusal()[2]


@pytest.mark.parametrize(
    ("pod", "word"),
    [
        ({"restartPolicy": "Always"}, "restartPolicy"),
        ({"container": {"volumeMounts": [{"name": "no", "mountPath": "/x"}]}}, "volumeMounts"),
        ({"container": {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}}, "cpu limit"),
        ({"container": {"resources": {"limits": {"nvidia.com/gpu": "1500m"}}}}, "nvidia.com/gpu"),
        (
            {
                "container": {
                    "resources": {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "2"}}
                }
            },
            "nvidia.com/gpu",
        ),
        ({"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}, "tolerations"),
    ],
)
def test_pods_that_cannot_be_are_invalid(kube: Clients, pod: dict[str, Any], word: str) -> None:
    with refused() as refusal:
        kube.start("true", **pod)
    assert refusal()[0] == 422
    assert word in refusal()[2]


def test_logs_can_be_cut_and_stamped(kube: Clients) -> None:
    name = kube.start("for n in 1 2 3; do echo line $n; done")
    kube.wait_for_end(name)
    pod = kube.pod_name(name)
    assert kube.log(pod, tail_lines=2) == "line 2\nline 3\n"
    assert kube.log(pod, timestamps=True, tail_lines=1).startswith("20")
    with refused() as refusal:
        kube.log(pod, container="nobody")
    assert refusal()[:2] == (400, "BadRequest")


def test_a_log_that_is_followed_ends_with_the_container(kube: Clients) -> None:
    name = kube.start("echo first; sleep 0.5; echo last")
    pod = kube.wait_for_phase(name, "Running")
    assert kube.log(pod, follow=True) == "first\nlast\n"


def test_a_pod_that_no_node_takes_is_unschedulable(kube: Clients) -> None:
    name = kube.start("true", nodeSelector={"nobody": "has-it"})
    wait_until(lambda: bool(kube.pod(name)["status"].get("conditions")))
    pod = kube.pod(name)
    (condition,) = pod["status"]["conditions"]
    assert (pod["status"]["phase"], condition["type"], condition["status"], condition["reason"]) == (
        "Pending",
        "PodScheduled",
        "False",
        "Unschedulable",
    )
    message = kube.wait_for_event(pod["metadata"]["name"], "FailedScheduling")
    assert "nodes are available" in message
    kube.delete_job(name)
    wait_until(lambda: not kube.pods(name))


def test_a_resource_that_no_node_has_is_insufficient(kube: Clients) -> None:
    name = kube.start("true", container={"resources": {"limits": {"example.com/none": 1}}})
    message = kube.wait_for_event(kube.pod_name(name), "FailedScheduling")
    assert "Insufficient example.com/none" in message
    kube.delete_job(name)


def test_containers_get_their_variables(kube: Clients) -> None:
    kube.core.create_namespaced_secret(
        kube.namespace, {"metadata": {"name": "s"}, "stringData": {"S_KEY": "secret"}}
    )
    kube.core.create_namespaced_config_map(
        kube.namespace, {"metadata": {"name": "c"}, "data": {"C_KEY": "config"}}
    )

    def field(path: str) -> dict[str, Any]:
        return {"fieldRef": {"fieldPath": path}}

    env = [
        {"name": "POD", "valueFrom": field("metadata.name")},
        {"name": "NS", "valueFrom": field("metadata.namespace")},
        {"name": "IP", "valueFrom": field("status.podIP")},
        {"name": "TEAM", "valueFrom": field("metadata.labels['team']")},
        {"name": "ONE", "valueFrom": {"secretKeyRef": {"name": "s", "key": "S_KEY"}}},
        {"name": "TWO", "value": "$(ONE)/$(C_KEY)/$(NOBODY)/$$(ONE)"},
    ]
    sources = [{"configMapRef": {"name": "c"}}, {"secretRef": {"name": "s"}}]
    script = 'echo "$POD $HOSTNAME $NS $TEAM $TWO $S_KEY $0"; test -n "$IP"'
    name = kube.start(
        "",
        labels={"team": "red"},
        container={"command": ["sh", "-c", script, "$(TEAM)"], "env": env, "envFrom": sources},
    )
    assert kube.wait_for_end(name)[0] == "Complete"
    pod = kube.pod_name(name)
    assert kube.log(pod).split() == [
        pod, pod, kube.namespace, "red", "secret/config/$(NOBODY)/$(ONE)", "secret", "red",
    ]  # fmt: skip


def test_a_missing_secret_holds_the_container_back_until_it_is_there(kube: Clients) -> None:
    source = {"secretKeyRef": {"name": "late", "key": "k"}}
    name = kube.start('echo "$K"', container={"env": [{"name": "K", "valueFrom": source}]})
    assert "late" in kube.wait_until_waits(name, "CreateContainerConfigError")
    kube.core.create_namespaced_secret(
        kube.namespace, {"metadata": {"name": "late"}, "stringData": {"k": "there"}}
    )
    assert kube.wait_for_end(name, within_sec=60)[0] == "Complete"


def test_a_missing_volume_holds_the_pod_back(kube: Clients) -> None:
    mounted = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}  # else a real kubelet does not wait for it
    name = kube.start("true", container=mounted, volumes=[{"name": "v", "configMap": {"name": "nobody"}}])
    assert '"nobody" not found' in kube.wait_for_event(kube.pod_name(name), "FailedMount")
    kube.wait_until_waits(name, "ContainerCreating")
    kube.delete_job(name)
    wait_until(lambda: not kube.pods(name), within_sec=60)


def test_an_image_that_is_nowhere_is_not_pulled(kube: Clients) -> None:
    name = kube.start("true", container={"image": "localhost:1/nobody/has-it:1"})
    kube.wait_until_waits(name, "ErrImagePull", "ImagePullBackOff")
    assert kube.pod(name)["status"]["phase"] == "Pending"
    kube.delete_job(name)


def test_a_program_that_is_not_there_fails_the_pod(kube: Clients) -> None:
    name = kube.start("", container={"command": ["no-such-program"]})
    kube.wait_for_end(name)
    assert terminated(kube.pod(name))["exitCode"] == 128


def test_a_missing_priority_class_means_no_pod(kube: Clients) -> None:
    name = kube.start("true", priorityClassName="nobody")
    assert "no PriorityClass with name nobody was found" in kube.wait_for_event(name, "FailedCreate")
    assert not kube.pods(name)
    kube.delete_job(name)


def test_a_missing_service_account_means_no_pod(kube: Clients) -> None:
    name = kube.start("true", serviceAccountName="nobody")
    assert 'serviceaccount "nobody" not found' in kube.wait_for_event(name, "FailedCreate")
    kube.delete_job(name)


def test_a_watch_tells_a_pod_from_its_start_to_its_end(kube: Clients) -> None:
    before = kube.core.list_namespaced_pod(kube.namespace).metadata.resource_version
    name = kube.start("sleep 3", labels={"watched": "yes"})
    seen: list[tuple[str, str]] = []
    watch = kubernetes.watch.Watch()
    for event in watch.stream(
        kube.core.list_namespaced_pod,
        kube.namespace,
        label_selector="watched=yes",
        resource_version=before,
        timeout_seconds=30,
    ):
        seen.append((event["type"], event["object"].status.phase))
        if seen[-1] == ("MODIFIED", "Succeeded") and seen[-2][1] != "Succeeded":
            kube.delete_job(name)
        if event["type"] == "DELETED":
            watch.stop()
    phases = [phase for _, phase in seen]
    assert seen[0] == ("ADDED", "Pending")
    assert seen[-1] == ("DELETED", "Succeeded")
    assert phases == sorted(phases, key=["Pending", "Running", "Succeeded"].index)
    assert "Running" in phases


def test_lists_come_by_selectors_and_in_pages(kube: Clients) -> None:
    for n in range(3):
        body = {"metadata": {"name": f"page-{n}", "labels": {"set": "pages", "n": str(n)}}}
        kube.core.create_namespaced_config_map(kube.namespace, body)

    def names(**options: Any) -> list[str]:
        return [
            item.metadata.name
            for item in kube.core.list_namespaced_config_map(kube.namespace, **options).items
        ]

    assert names(label_selector="set=pages,n!=1") == ["page-0", "page-2"]
    assert names(label_selector="set in (pages,books),n notin (0,1)") == ["page-2"]
    assert names(field_selector="metadata.name=page-1") == ["page-1"]
    first = kube.core.list_namespaced_config_map(kube.namespace, label_selector="set=pages", limit=2)
    assert (len(first.items), first.metadata.remaining_item_count) in ((2, 1), (2, None))
    assert names(label_selector="set=pages", limit=2, _continue=first.metadata._continue) == ["page-2"]


def test_a_write_on_an_old_version_is_a_conflict(kube: Clients) -> None:
    made = kube.core.create_namespaced_config_map(
        kube.namespace, {"metadata": {"name": "versions"}, "data": {"n": "1"}}
    )
    kube.core.patch_namespaced_config_map("versions", kube.namespace, {"data": {"n": "2"}})
    made.data = {"n": "3"}
    with refused() as refusal:
        kube.core.replace_namespaced_config_map("versions", kube.namespace, made)
    assert refusal()[:2] == (409, "Conflict")
    assert kube.core.read_namespaced_config_map("versions", kube.namespace).data == {"n": "2"}

"""The double's own: every manifest is checked strictly, and kept as it came."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kubernetes.cluster import Unschedulable
from tests.kubernetes.double.cluster import DoubleCluster
from tests.kubernetes.double.errors import ApiFailure
from tests.kubernetes.double.quantities import quantity
from tests.kubernetes.plain_jobs import Clients, refused
from tests.support.processes import wait_until


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        ({"nodeSelectors": {"a": "b"}}, "spec.template.spec: Additional properties are not allowed"),
        ({"tolerations": [{"keys": "a"}]}, "spec.template.spec.tolerations[0]: Additional properties"),
        (
            {"container": {"env": [{"name": "N", "value": 1}]}},
            "spec.template.spec.containers[0].env[0].value: 1 is",
        ),
        ({"volumes": [{"name": "v", "emptyDir": {"medium": "RAM"}}]}, "emptyDir.medium"),
        ({"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1GiB"}}]}, "emptyDir.sizeLimit"),
        ({"container": {"resources": {"limits": {"gpu": "1"}}}}, "must be a standard resource"),
        ({"container": {"resources": {"requests": {"nvidia.com/gpu": "1"}}}}, "Limit must be set"),
        ({"labels": {"team": "x" * 64}}, "no more than 63 characters"),
        ({"labels": {"team name": "x"}}, "name part must consist of"),
    ],
)
def test_what_is_wrong_is_named_and_noted(
    double: DoubleCluster, on_double: Clients, pod: dict[str, Any], message: str
) -> None:
    with refused() as refusal:
        on_double.start("true", **pod)
    assert refusal()[:2] == (422, "Invalid")
    assert message in refusal()[2]
    (noted,) = double.rejected
    assert (noted.verb, noted.plural, noted.code) == ("create", "jobs", 422)
    assert message in noted.message
    assert not double.jobs()


def test_unknown_fields_of_patches_are_refused_too(double: DoubleCluster, on_double: Clients) -> None:
    name = on_double.start("true", job={"suspend": True})
    with refused() as refusal:
        on_double.batch.patch_namespaced_job(name, on_double.namespace, {"spec": {"suspended": False}})
    assert refusal()[0] == 422
    assert [one.verb for one in double.rejected] == ["patch"]


def test_manifests_are_kept_as_they_came(double: DoubleCluster, on_double: Clients) -> None:
    sent = on_double.manifest("kept", "true", labels={"team": "red"})
    on_double.batch.create_namespaced_job(on_double.namespace, sent)
    assert double.manifests_of("jobs") == [sent]
    assert double.jobs()[0] != sent


def test_a_client_without_the_token_may_do_nothing(on_double: Clients) -> None:
    on_double.connection.configuration.api_key = {}
    with refused() as refusal:
        on_double.core.list_namespaced_pod(on_double.namespace)
    assert refusal()[:2] == (401, "Unauthorized")


def test_what_a_job_is_made_of_cannot_be_changed(on_double: Clients) -> None:
    name = on_double.start("sleep 60")
    template = {"spec": {"nodeSelector": {"a": "b"}}}
    with refused() as refusal:
        on_double.batch.patch_namespaced_job(name, on_double.namespace, {"spec": {"template": template}})
    assert "spec.template: Invalid value: field is immutable" in refusal()[2]


def test_a_queue_may_say_where_a_suspended_job_goes(on_double: Clients) -> None:
    name = on_double.start("true", job={"suspend": True})
    change = {"suspend": False, "template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": "cpu-0"}}}}
    on_double.batch.patch_namespaced_job(name, on_double.namespace, {"spec": change})
    assert on_double.wait_for_end(name)[0] == "Complete"
    assert on_double.pod(name)["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "cpu-0"}


def test_gates_hold_a_pod_until_they_are_taken_away(on_double: Clients) -> None:
    name = on_double.start("true", schedulingGates=[{"name": "example.com/queue"}])
    wait_until(lambda: bool(on_double.pod(name)["status"].get("conditions")))
    assert on_double.pod(name)["status"]["conditions"][0]["reason"] == "SchedulingGated"
    patch = [{"op": "remove", "path": "/spec/schedulingGates"}]
    on_double.core.patch_namespaced_pod(on_double.pod_name(name), on_double.namespace, patch)
    assert on_double.wait_for_end(name)[0] == "Complete"


def test_a_priority_class_gives_its_value(double: DoubleCluster, on_double: Clients) -> None:
    double.create(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "urgent"},
            "value": 1000,
        }
    )
    name = on_double.start("true", priorityClassName="urgent")
    assert on_double.pod(name)["spec"]["priority"] == 1000


def test_a_namespace_goes_with_what_is_in_it(double: DoubleCluster, on_double: Clients) -> None:
    on_double.core.create_namespace({"metadata": {"name": "other"}})
    wait_until(lambda: bool(on_double.core.list_namespaced_service_account("other").items))
    on_double.batch.create_namespaced_job(
        "other", on_double.manifest("x", "sleep 60", terminationGracePeriodSeconds=1)
    )
    wait_until(lambda: bool(double.pids()))
    on_double.core.delete_namespace("other")
    wait_until(lambda: "other" not in [one.metadata.name for one in on_double.core.list_namespace().items])
    assert not double.pids()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500m", 0.5),
        ("4", 4),
        ("1.5", 1.5),
        ("10Gi", 10 * 2**30),
        ("2k", 2000),
        ("1e3", 1000),
        ("1E", 10**18),
    ],
)
def test_quantities(text: str, value: float) -> None:
    assert float(quantity(text)) == value


@pytest.mark.parametrize("text", ["", "10GiB", "1 Gi", "a", "1ki", "--1"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="quantities must match"):
        quantity(text)


def test_a_fault_with_a_selector_that_cannot_be_read_is_refused(double: DoubleCluster) -> None:
    with pytest.raises(ApiFailure):
        double.add_fault(Unschedulable("a=b=c"))

"""The manifests beside the chart: valid to Kubernetes, closed by default, with no rights but those used."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster_k8s
import kubernetes_validate
import pytest
import yaml  # type: ignore[import-untyped]

import batch_pipelines.kubernetes

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
OVERLAYS = ("base", "overlays/eks", "overlays/gke", "overlays/nvidia")
OURS = {"ServiceAccount": {"batch-pipelines", "batch-pipelines-step"}}
METADATA = "169.254.0.0/16"

CALL = re.compile(r"\b(create|read|list|delete|patch|replace|delete_collection|watch)_namespaced_([a-z_]+)\b")
VERBS = {"read": "get", "replace": "update", "delete_collection": "deletecollection"}
RESOURCES = {
    "job": ("batch", "jobs"),
    "job_with_retries": ("batch", "jobs"),
    "job_status": ("batch", "jobs/status"),
    "pod": ("", "pods"),
    "pod_log": ("", "pods/log"),
    "event": ("", "events"),
}


OPTION = re.compile(r"^( *)# (?= *- | *[a-zA-Z./0-9-]+: |patches:|components:)", re.MULTILINE)
"""Before a line that a deployment may switch on, in queues, quotas and overlays."""


def switched_on(text: str) -> str:
    return OPTION.sub(r"\1", text)


def documents(path: Path) -> list[dict[str, Any]]:
    return [found for found in yaml.safe_load_all(path.read_text(encoding="utf-8")) if found]


def objects() -> Iterator[dict[str, Any]]:
    for path in sorted(FOLDER.rglob("*.yaml")):
        for found in documents(path):
            if not found["apiVersion"].startswith(("kustomize.", "kueue.")):
                yield found


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {found["metadata"]["name"]: found for found in objects() if found["kind"] == kind}


@pytest.mark.parametrize("version", ["1.29", "1.37"])
@pytest.mark.parametrize("found", [pytest.param(one, id=one["metadata"]["name"]) for one in objects()])
def test_object_is_valid_to_kubernetes(found: dict[str, Any], version: str) -> None:
    assert kubernetes_validate.validate(found, version, strict=True)


def test_a_wrong_field_would_be_noticed() -> None:
    role = of_kind("Role")["batch-pipelines"]
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**role, "ruless": []}, "1.33", strict=True)


def test_every_file_belongs_to_a_kustomization() -> None:
    for folder in {path.parent for path in FOLDER.rglob("*.yaml")}:
        (made,) = documents(folder / "kustomization.yaml")
        local = {name for name in made["resources"] if not name.startswith("..")}
        assert local == {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml"}


# No dependency of the project brings kubectl; every object is checked by itself above, wherever this runs.
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_overlay_builds_and_stays_valid(overlay: str) -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", FOLDER / overlay], capture_output=True, text=True, check=True
    )
    built = [found for found in yaml.safe_load_all(done.stdout) if found]
    for found in built:
        kubernetes_validate.validate(found, "1.33", strict=True)
        if found["kind"] not in ("Namespace", "PriorityClass"):
            assert found["metadata"]["namespace"] == "batch-pipelines"
    assert {found["metadata"]["name"] for found in built if found["kind"] == "ServiceAccount"} == OURS[
        "ServiceAccount"
    ]


def test_role_allows_just_the_calls_that_the_code_makes() -> None:
    """Of dagster-k8s what runs and steps use: Pipes and `k8s_job_op` are not used here."""
    theirs = Path(dagster_k8s.__file__).parent
    ours = Path(batch_pipelines.kubernetes.__file__).parent
    sources = [theirs / f"{name}.py" for name in ("client", "executor", "job", "launcher", "utils")]
    calls = {
        (*RESOURCES[resource], VERBS.get(verb, verb))
        for source in [*sources, *ours.rglob("*.py")]
        for verb, resource in CALL.findall(source.read_text(encoding="utf-8"))
    }
    allowed = {
        (group, resource, verb)
        for rule in of_kind("Role")["batch-pipelines"]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert allowed == calls


def test_steps_have_no_rights_and_no_token() -> None:
    bound = [
        subject["name"] for binding in of_kind("RoleBinding").values() for subject in binding["subjects"]
    ]
    assert bound == ["batch-pipelines"]
    assert of_kind("ServiceAccount").keys() == OURS["ServiceAccount"]
    assert all(not account["automountServiceAccountToken"] for account in of_kind("ServiceAccount").values())


def test_nothing_passes_unless_a_policy_names_it() -> None:
    assert of_kind("NetworkPolicy")["deny-by-default"]["spec"] == {
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
    }


def test_nodes_credentials_are_out_of_reach() -> None:
    """A wide range leaves the metadata address out; an overlay opens one address there, on one port."""
    for name, policy in of_kind("NetworkPolicy").items():
        for rule in policy["spec"].get("egress", []):
            for block in (to["ipBlock"] for to in rule["to"] if "ipBlock" in to):
                narrow = block["cidr"].endswith("/32") and rule["ports"]
                assert narrow or METADATA in block["except"], name


def test_metadata_address_is_opened_by_the_gke_overlay_alone() -> None:
    opened = {
        path.relative_to(FOLDER).as_posix()
        for path in FOLDER.rglob("*.yaml")
        if "cidr: 169.254.169." in path.read_text(encoding="utf-8")
    }
    assert opened == {"overlays/gke/metadata-server.yaml"}


def test_only_high_priority_takes_others_places() -> None:
    classes = of_kind("PriorityClass")
    assert classes["batch-low"]["value"] < classes["batch-default"]["value"] < classes["batch-high"]["value"]
    preempting = [name for name, found in classes.items() if found["preemptionPolicy"] != "Never"]
    assert preempting == ["batch-high"]


@pytest.mark.parametrize("everything", [False, True])
def test_queues_of_kueue_fit_together(everything: bool) -> None:
    """Kueue's own types are in no published schema of Kubernetes: the names in them are checked."""
    text = (FOLDER / "components" / "kueue" / "queues.yaml").read_text(encoding="utf-8")
    text = switched_on(text) if everything else text
    found = {item["kind"]: item for item in yaml.safe_load_all(text)}
    queue = found["ClusterQueue"]
    assert found["LocalQueue"]["spec"]["clusterQueue"] == queue["metadata"]["name"]
    (group,) = queue["spec"]["resourceGroups"]
    assert ("nvidia.com/mig-1g.20gb" in group["coveredResources"]) == everything
    for flavor in group["flavors"]:
        assert flavor["name"] == found["ResourceFlavor"]["metadata"]["name"]
        assert [resource["name"] for resource in flavor["resources"]] == group["coveredResources"]


def test_options_of_the_quota_are_valid() -> None:
    text = (FOLDER / "components" / "quota" / "resource-quota.yaml").read_text(encoding="utf-8")
    quota = yaml.safe_load(switched_on(text))
    assert "requests.nvidia.com/mig-1g.20gb" in quota["spec"]["hard"]
    assert kubernetes_validate.validate(quota, "1.33", strict=True)


def test_port_of_a_store_is_opened_in_both_policies() -> None:
    """Where steps and where everything else reach stores; the places are JSON pointers into the base."""
    text = (FOLDER / "overlays" / "nvidia" / "kustomization.yaml").read_text(encoding="utf-8")
    overlay = yaml.safe_load(switched_on(text))
    assert {patch["target"]["name"] for patch in overlay["patches"]} == {"steps-to-stores", "control-plane"}
    for patch in overlay["patches"]:
        (change,) = yaml.safe_load(patch["patch"])
        assert change["path"] == "/spec/egress/0/ports/-"
        policy = of_kind("NetworkPolicy")[patch["target"]["name"]]
        assert {"port": 443, "protocol": "TCP"} in policy["spec"]["egress"][0]["ports"]

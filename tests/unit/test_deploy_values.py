"""What a deployment sets for the program: names the program knows, values it takes, and no credentials."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from batch_pipelines.kubernetes.cluster_table import load_cluster_table
from batch_pipelines.settings import Settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
VALUES = yaml.safe_load((DEPLOY / "helm" / "values.yaml").read_text(encoding="utf-8"))
(CODE,) = VALUES["dagster-user-deployments"]["deployments"]
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
PREFIX = "BATCH_PIPELINES_"
KNOWN = {PREFIX + name.upper() for name in Settings.model_fields}
DOCUMENTS = [
    *(path for path in DEPLOY.rglob("*") if path.is_file() and path.suffix != ".pyc"),
    ROOT / "docs" / "deploy.md",
]


def filled(text: str, **environment: str) -> str:
    """Compose's interpolation, as far as it is used here."""
    return re.sub(
        r"\$\{(\w+)(?::[-?]([^}]*))?\}", lambda found: environment.get(found[1], found[2] or ""), text
    )


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_variable_named_is_one_the_program_knows(path: Path) -> None:
    assert set(re.findall(rf"{PREFIX}[A-Z_]+[A-Z]", path.read_text(encoding="utf-8"))) <= KNOWN


def test_program_takes_what_the_chart_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in CODE["env"]:
        monkeypatch.setenv(variable["name"], variable["value"])
    settings = Settings()
    assert settings.executor == "kubernetes"
    assert settings.location == CODE["name"]
    assert not any(settings.job_store.startswith(root) for root in settings.request_roots)
    classes = (DEPLOY / "kubernetes" / "base" / "priority-classes.yaml").read_text(encoding="utf-8")
    made = {found["metadata"]["name"] for found in yaml.safe_load_all(classes)}
    assert set(settings.priority_classes.values()) == made


def test_program_takes_what_compose_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in COMPOSE["services"]["code"]["environment"].items():
        monkeypatch.setenv(name, filled(str(value), BATCH_DATA="/srv/b", POSTGRES_PASSWORD="x"))
    settings = Settings()
    assert settings.executor == "local"
    assert settings.request_roots == ["file:///srv/b/data"]
    assert settings.job_store == "file:///srv/b/jobs"


def containers() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "code", CODE
    yield "webserver", VALUES["dagsterWebserver"]
    yield "daemon", VALUES["dagsterDaemon"]


@pytest.mark.parametrize(("name", "found"), [pytest.param(*one, id=one[0]) for one in containers()])
def test_pods_are_confined(name: str, found: dict[str, Any]) -> None:
    del name
    assert found["podSecurityContext"]["runAsNonRoot"]
    assert found["podSecurityContext"]["runAsUser"] == 2000  # the Dockerfiles' own
    assert found["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {mount["mountPath"] for mount in found["volumeMounts"]} == {"/tmp", "/var/lib/batch-pipelines"}
    assert {mount["name"] for mount in found["volumeMounts"]} == {
        volume["name"] for volume in found["volumes"]
    }
    assert found["image"] == CODE["image"]


def test_rights_and_passwords_do_not_come_from_the_chart() -> None:
    for chart in (VALUES, VALUES["dagster-user-deployments"]):
        assert not chart["rbacEnabled"]
        assert not chart["serviceAccount"]["create"]
    assert not VALUES["generatePostgresqlPasswordSecret"]
    assert not VALUES["generateCeleryConfigSecret"]
    assert "postgresqlPassword" not in VALUES["postgresql"]
    accounts = (DEPLOY / "kubernetes" / "base" / "service-accounts.yaml").read_text(encoding="utf-8")
    names = {found["metadata"]["name"] for found in yaml.safe_load_all(accounts)}
    assert VALUES["global"]["serviceAccountName"] in names


def test_webserver_is_not_put_on_the_net() -> None:
    assert VALUES["dagsterWebserver"]["service"]["type"] == "ClusterIP"
    assert not VALUES["ingress"]["enabled"]
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_webserver_listens_where_it_is_probed_and_let_in() -> None:
    port = VALUES["dagsterWebserver"]["service"]["port"]
    assert VALUES["dagsterWebserver"]["readinessProbe"]["httpGet"]["port"] == port
    policies = (DEPLOY / "kubernetes" / "base" / "network-policies.yaml").read_text(encoding="utf-8")
    found = {item["metadata"]["name"]: item["spec"] for item in yaml.safe_load_all(policies)}
    assert found["webserver"]["ingress"][0]["ports"] == [{"port": port, "protocol": "TCP"}]
    assert found["code-server"]["ingress"][0]["ports"] == [{"port": CODE["port"], "protocol": "TCP"}]


def test_overlays_of_values_know_the_same_keys() -> None:
    for path in (DEPLOY / "helm").glob("values-*.yaml"):
        overlay = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert overlay.keys() <= VALUES.keys(), path.name


def test_compose_services_fit_together() -> None:
    services = COMPOSE["services"]
    assert services.keys() == {"postgres", "code", "webserver", "daemon"}
    workspace = yaml.safe_load((DEPLOY / "compose" / "workspace.yaml").read_text(encoding="utf-8"))
    server = workspace["load_from"][0]["grpc_server"]
    assert server["host"] in services
    assert str(server["port"]) in services["code"]["command"]
    assert server["location_name"] == Settings.model_fields["location"].default
    assert services["code"]["deploy"]["resources"]["reservations"]["devices"][0]["capabilities"] == ["gpu"]
    for name in ("code", "webserver", "daemon"):
        assert services[name]["read_only"]
        assert (DEPLOY / services[name]["volumes"][1].split(":")[0]).is_file()


def test_example_of_the_environment_has_every_variable_and_no_secret() -> None:
    lines = (DEPLOY / "compose" / "env.example").read_text(encoding="utf-8").splitlines()
    given = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    used = set(re.findall(r"\$\{(\w+)", json.dumps(COMPOSE)))
    assert used - {"BATCH_IMAGE", "BATCH_GPU_IMAGE"} == given.keys()
    assert {name for name, value in given.items() if not value} == {"POSTGRES_PASSWORD", "HF_TOKEN"}


def test_roles_reach_just_the_prefixes_of_the_values() -> None:
    variables = {variable["name"]: variable["value"] for variable in CODE["env"]}
    (root,) = json.loads(variables[PREFIX + "STORAGE_ROOTS"])
    logs = VALUES["computeLogManager"]["config"]["s3ComputeLogManager"]
    mine = {
        variables[PREFIX + "STORE"],
        root,
        f"s3://{logs['bucket']}/{logs['prefix']}",
        "s3://example-batch/models",
    }
    for role in ("control", "step"):
        policy = json.loads((DEPLOY / "aws" / f"{role}-policy.json").read_text(encoding="utf-8"))
        arns = {arn for statement in policy["Statement"] for arn in statement["Resource"]}
        objects = {arn for arn in arns if "/" in arn}
        assert objects == {f"arn:aws:s3:::{place.removeprefix('s3://')}/*" for place in mine}, role
        assert arns - objects == {"arn:aws:s3:::example-batch"}
        written = {
            arn.split("/", 1)[1]
            for statement in policy["Statement"]
            if "s3:PutObject" in statement["Action"]
            for arn in statement["Resource"]
        }
        assert "models/*" not in written
        assert ("data/*" in written) == (role == "step")


@pytest.mark.parametrize("role", ["control", "step"])
def test_documented_line_names_the_bucket_everywhere(role: str) -> None:
    text = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^ *(sed .*example-batch.*) > ", text, re.MULTILINE)
    environment = {"PATH": os.environ["PATH"], "BUCKET": "my-bucket", "role": role}
    done = subprocess.run(
        ["sh", "-c", line], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert "arn:aws:s3:::my-bucket/jobs/*" in done.stdout
    assert "example-batch" not in done.stdout


def test_node_groups_have_the_labels_that_the_cluster_table_asks_for() -> None:
    cluster = yaml.safe_load((DEPLOY / "aws" / "cluster.yaml").read_text(encoding="utf-8"))
    table = load_cluster_table("eks")
    for group in cluster["managedNodeGroups"]:
        for name in group.get("labels", {}).values():
            nodes = table.gpu_types[name]
            assert {label: (value,) for label, value in group["labels"].items()} == nodes.node_labels
            assert {taint["key"] for taint in group["taints"]} == {taint.key for taint in nodes.tolerations}

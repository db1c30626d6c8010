"""The nodes of deploy/aws: what the autoscaler is told of them, and what jobs are told, fit each other."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from batch_pipelines.hardware.gpus import HardwareTable, load_table
from batch_pipelines.hardware.quantities import GIB, parse_bytes
from batch_pipelines.kubernetes.cluster_table import load_cluster_table

AWS = Path(__file__).parents[2] / "deploy" / "aws"
DOCUMENT = AWS.parents[1] / "docs" / "deploy.md"
CLUSTER = (AWS / "cluster.yaml").read_text(encoding="utf-8")
LABEL = "k8s.amazonaws.com/accelerator"
RESOURCE = "k8s.io/cluster-autoscaler/node-template/resources/"


def groups(text: str = CLUSTER) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(text)["managedNodeGroups"]
    return found


def every_group() -> list[dict[str, Any]]:
    """Also those that are there to be switched on."""
    slices = CLUSTER.index("  # - name: ")
    return groups(CLUSTER[:slices] + re.sub(r"^  # ", "  ", CLUSTER[slices:], flags=re.MULTILINE))


def hardware(tmp_path: Path, *, every_type: bool) -> HardwareTable:
    """The table; with every type, the entries that stand behind null are taken."""
    text = (AWS / "hardware.yaml").read_text(encoding="utf-8")
    path = tmp_path / "hardware.yaml"
    path.write_text(text.replace("null # {", "{") if every_type else text, encoding="utf-8")
    return load_table(path)


def allocatable(group: dict[str, Any]) -> float:
    """Bytes of disk for pods: the kubelet keeps a tenth, EKS 1 GiB."""
    return float(group["volumeSize"] * GIB * 0.9 - GIB)


def told(group: dict[str, Any]) -> int:
    return parse_bytes(group["tags"][RESOURCE + "ephemeral-storage"], "it")


def test_autoscaler_knows_what_pods_ask_for_before_there_are_nodes() -> None:
    from_zero = [group for group in every_group() if group["minSize"] == 0]
    assert {group["name"] for group in from_zero} == {"steps", "h100", "h100-1g20gb"}
    table = load_cluster_table("eks")
    for group in from_zero:
        assert group["propagateASGTags"]
        assert told(group) <= allocatable(group)
        for gpu_type in group.get("labels", {}).values():
            resource = table.gpu_types[gpu_type].resource
            assert resource == "nvidia.com/gpu" or RESOURCE + resource in group["tags"]


def test_hardware_table_has_the_types_of_the_cluster(tmp_path: Path) -> None:
    table = hardware(tmp_path, every_type=False)
    assert set(table.gpu_types) == {group["labels"][LABEL] for group in groups() if "labels" in group}
    assert set(hardware(tmp_path, every_type=True).gpu_types) == set(load_table().gpu_types)


def test_hardware_table_promises_no_more_disk_than_nodes_have(tmp_path: Path) -> None:
    table = hardware(tmp_path, every_type=True)
    for group in every_group():
        for gpu_type in group.get("labels", {}).values():
            assert table.gpu_types[gpu_type].node.storage <= told(group)
    (steps,) = (group for group in groups() if group["name"] == "steps")
    assert table.cpu_node.storage <= told(steps)


def test_small_steps_fit_the_nodes_without_gpus(tmp_path: Path) -> None:
    node, steps = hardware(tmp_path, every_type=False).cpu_node, load_cluster_table("eks").small_steps
    for step in (steps.validate_request, steps.shard_inputs, steps.merge_outputs):
        assert step.cpus <= node.cpus
        assert step.memory <= node.memory
        assert step.storage <= node.storage


@pytest.mark.parametrize("number", [0, 1])
def test_documented_tables_are_taken(number: int, tmp_path: Path) -> None:
    examples = re.findall(r"^```yaml\n(gpu_types:.*?)^```", DOCUMENT.read_text(encoding="utf-8"), re.M | re.S)
    path = tmp_path / "table.yaml"
    path.write_text(examples[number], encoding="utf-8")
    if number:
        assert "nvidia-tesla-t4" not in load_table(path).gpu_types
    else:
        assert "nvidia-tesla-t4" not in load_cluster_table("eks", path).gpu_types


def test_documented_names_of_gpu_types_are_all() -> None:
    (paragraph,) = re.findall(
        r"^A request's `gpu_type` is .*?\n\n", DOCUMENT.read_text(encoding="utf-8"), re.M | re.S
    )
    assert set(re.findall(r"`(nvidia-[a-z0-9-]+)`", paragraph)) == set(load_table().gpu_types)

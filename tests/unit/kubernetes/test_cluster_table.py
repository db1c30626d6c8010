"""The table of a cluster, packaged and overridden."""

from pathlib import Path
from typing import get_args

import pytest

from batch_pipelines.api.request import GpuType
from batch_pipelines.hardware.gpus import load_table
from batch_pipelines.kubernetes.cluster_table import (
    ClusterTable,
    ClusterTableInvalid,
    load_cluster_table,
    within_cluster,
)

A10 = "nvidia-ampere-a10"


def override(folder: Path, text: str, profile: str = "nvidia") -> ClusterTable:
    path = folder / "cluster.yaml"
    path.write_text(text)
    return load_cluster_table(profile, path)


@pytest.mark.parametrize(("profile", "lacks"), [("nvidia", set()), ("eks", set()), ("gke", {A10})])
def test_profiles_know_every_type_that_their_clusters_have(profile: str, lacks: set[str]) -> None:
    assert set(load_cluster_table(profile).gpu_types) == set(get_args(GpuType)) - lacks


@pytest.mark.parametrize("profile", ["nvidia", "eks", "gke"])
def test_no_two_types_are_the_same_gpus(profile: str) -> None:
    seen = set()
    for nodes in load_cluster_table(profile).gpu_types.values():
        seen |= {(nodes.resource, str(nodes.node_labels))}
    assert len(seen) == len(load_cluster_table(profile).gpu_types)


def test_whole_gpus_of_gke_are_not_looked_for_on_partitioned_nodes() -> None:
    types = load_cluster_table("gke").gpu_types
    label = "cloud.google.com/gke-gpu-partition-size"
    assert types["nvidia-hopper-h100"].node_labels[label] == ()
    assert types["nvidia-hopper-h100-1g20gb"].node_labels[label] == ("1g.20gb",)


def test_override_changes_single_fields_and_takes_out_what_is_null(tmp_path: Path) -> None:
    table = override(
        tmp_path,
        """
        gpu_types:
          nvidia-ampere-a10:
            node_labels: {nvidia.com/gpu.product: null, pool: [a, b]}
            multi_node_resources: {vpc.amazonaws.com/efa: 4, hugepages-2Mi: 5Gi}
          nvidia-tesla-t4: null
        small_steps: {shard_inputs: {memory: 12Gi}}
        """,
    )
    packaged, changed = load_cluster_table("nvidia"), table.gpu_types["nvidia-ampere-a10"]
    assert changed.node_labels == {"pool": ("a", "b")}
    assert changed.multi_node_resources == {"vpc.amazonaws.com/efa": "4", "hugepages-2Mi": "5Gi"}
    assert (changed.resource, changed.tolerations) == (
        packaged.gpu_types["nvidia-ampere-a10"].resource,
        packaged.gpu_types["nvidia-ampere-a10"].tolerations,
    )
    assert set(packaged.gpu_types) - set(table.gpu_types) == {"nvidia-tesla-t4"}
    assert table.small_steps.shard_inputs.memory == 12 * 2**30
    assert table.small_steps.shard_inputs.cpus == packaged.small_steps.shard_inputs.cpus


def test_hardware_that_the_cluster_lacks_is_never_chosen() -> None:
    hardware = within_cluster(load_table(), load_cluster_table("gke"))
    assert set(load_table().gpu_types) - set(hardware.gpu_types) == {A10}
    assert hardware.cpu_node == load_table().cpu_node


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gpu_types: {my-gpu: {resource: nvidia.com/gpu}}", r"my-gpu"),
        ("gpu_types: {nvidia-ampere-a10: {resource: a b}}", r"nvidia-ampere-a10\.resource: .*'a b'"),
        ("gpu_types: {nvidia-ampere-a10: {resources: x}}", r"nvidia-ampere-a10\.resources: unknown field"),
        ("gpu_types: {nvidia-ampere-a10: {node_labels: {pool: 5}}}", r"node_labels\.pool: .*quotes"),
        ("gpu_types: {nvidia-ampere-a10: {node_labels: {pool: a b}}}", r"node_labels\.pool.*'a b'"),
        ("gpu_types: {nvidia-ampere-a10: {node_labels: {a b: x}}}", r"node_labels\.a b.*'a b'"),
        ("gpu_types: {nvidia-ampere-a10: {tolerations: [{effect: NoSchedule}]}}", r"tolerations\[0\].*key"),
        ("gpu_types: {nvidia-ampere-a10: {tolerations: [{key: x, efect: y}]}}", r"tolerations\[0\]\.efect"),
        ("gpu_types: {nvidia-ampere-a10: {multi_node_resources: {efa: -1}}}", r"multi_node_resources\.efa"),
        ("gpu_types: {nvidia-ampere-a10: {multi_node_resources: {efa: true}}}", r"multi_node_resources\.efa"),
        ("cpu_node: {tolerations: [{key: x, operator: Exists, value: y}]}", r"tolerations\[0\].*no value"),
        ("small_steps: {shard_inputs: {memory: 4}}", r"small_steps\.shard_inputs\.memory: .*unit"),
        ("small_steps: {run_inference: {memory: 4Gi}}", r"small_steps\.run_inference: unknown field"),
        ("shm_share: 1", r"shm_share"),
        ("lost_node_sec: soon", r"lost_node_sec"),
        ("code_evaluator: {seccomp_profile: {type: Localhost}}", r"seccomp_profile.*localhost_profile"),
        ("common: {lost_node_sec: 1}", r"common: unknown field"),
        ("gpu_types: {", "is not YAML"),
        ("", "is not a mapping"),
    ],
)
def test_wrong_entry_is_named_with_its_file(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ClusterTableInvalid, match=rf"(?s)cluster table .*cluster\.yaml.*{says}"):
        override(tmp_path, text)


def test_missing_file_and_unknown_cluster_are_named(tmp_path: Path) -> None:
    with pytest.raises(ClusterTableInvalid, match=r"nowhere\.yaml cannot be read"):
        load_cluster_table("nvidia", tmp_path / "nowhere.yaml")
    with pytest.raises(ClusterTableInvalid, match="no cluster 'aks': expected eks, gke, nvidia"):
        load_cluster_table("aks")

"""The table of GPU types, packaged and overridden."""

from pathlib import Path
from typing import get_args

import pytest

from batch_pipelines.api.request import GpuType
from batch_pipelines.hardware.gpus import HardwareTable, HardwareTableInvalid, load_table

GIB = 2**30


def override(folder: Path, text: str) -> HardwareTable:
    path = folder / "hardware.yaml"
    path.write_text(text)
    return load_table(path)


def test_every_type_a_request_may_name_is_there() -> None:
    assert set(load_table().gpu_types) == set(get_args(GpuType))


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        ("nvidia-tesla-t4", 15),
        ("nvidia-ampere-a10", 22.5),
        ("nvidia-ampere-a100", 39.5),
        ("nvidia-ampere-a100e", 79.15),
        ("nvidia-hopper-h100", 79.65),
        ("nvidia-hopper-h100-1g20gb", 19.5),
        ("nvidia-hopper-h100-3g40gb", 39.25),
    ],
)
def test_memory_is_what_the_driver_reports(name: GpuType, gib: float) -> None:
    assert load_table().gpu_types[name].memory / GIB == pytest.approx(gib, rel=0.002)


def test_slices_come_one_to_a_pod() -> None:
    for name, gpu in load_table().gpu_types.items():
        assert gpu.slice == (gpu.gpus_per_node == 1) == ("gb" in name)


def test_override_changes_single_fields(tmp_path: Path) -> None:
    table = override(tmp_path, "gpu_types:\n  nvidia-ampere-a10: {gpus_per_node: 8, node: {cpus: 190}}\n")
    packaged, changed = load_table().gpu_types["nvidia-ampere-a10"], table.gpu_types["nvidia-ampere-a10"]
    assert (changed.gpus_per_node, changed.node.cpus) == (8, 190_000)
    assert (changed.memory, changed.node.memory) == (packaged.memory, packaged.node.memory)
    assert table.cpu_node == load_table().cpu_node


def test_override_takes_types_out(tmp_path: Path) -> None:
    table = override(tmp_path, "gpu_types: {nvidia-tesla-t4: null}")
    assert set(load_table().gpu_types) - set(table.gpu_types) == {"nvidia-tesla-t4"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gpu_types: {nvidia-ampere-a10: {memory: lots}}", r"gpu_types\.nvidia-ampere-a10\.memory.*'lots'"),
        ("gpu_types: {nvidia-ampere-a10: {memory: 24}}", r"gpu_types\.nvidia-ampere-a10\.memory.*unit"),
        ("gpu_types: {nvidia-ampere-a10: {memory: [1]}}", r"gpu_types\.nvidia-ampere-a10\.memory"),
        ("gpu_types: {nvidia-ampere-a10: {gpus: 4}}", r"gpu_types\.nvidia-ampere-a10\.gpus: unknown field"),
        ("gpu_types: {nvidia-ampere-a10: {gpus_per_node: 0}}", r"nvidia-ampere-a10\.gpus_per_node"),
        ("gpu_types: {nvidia-ampere-a10: {cost: .inf}}", r"nvidia-ampere-a10\.cost"),
        ("gpu_types: {nvidia-ampere-a10: 3}", r"nvidia-ampere-a10"),
        ("gpu_types: {my-gpu: {memory: 24Gi}}", r"my-gpu"),
        ("gpu_types: [1]", r"gpu_types"),
        ("cpu_node: {cpus: -1}", r"cpu_node\.cpus.*'-1'"),
        ("cpu_nodes: {cpus: 1}", r"cpu_nodes: unknown field"),
        ("gpu_types: {", "is not YAML"),
        ("- 1", "is not a mapping"),
        ("", "is not a mapping"),
    ],
)
def test_wrong_entry_is_named_with_its_file(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(HardwareTableInvalid, match=rf"(?s)hardware\.yaml.*{says}"):
        override(tmp_path, text)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(HardwareTableInvalid, match=r"nowhere\.yaml cannot be read"):
        load_table(tmp_path / "nowhere.yaml")


def test_yaml_cannot_make_objects(tmp_path: Path) -> None:
    with pytest.raises(HardwareTableInvalid, match="is not YAML"):
        override(tmp_path, "gpu_types: !!python/object/apply:os.getcwd []")

"""Whatever is asked: a chosen plan fits, keeps what was named, and is what naming it all would give."""

from typing import Any, get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from batch_pipelines.api.request import GpuType
from batch_pipelines.hardware.choose import Hardware, HardwareInvalid, infer_hardware
from batch_pipelines.hardware.gpus import load_table
from batch_pipelines.hardware.memory import EngineSetup, Layout, needed_bytes, usable_bytes
from batch_pipelines.hardware.quantities import format_bytes, format_cpus, parse_bytes, parse_cpus
from batch_pipelines.models.checkpoint_facts import CheckpointFacts
from tests.support import model_configs as known
from tests.support.hardware import facts_of, make_request

TABLE = load_table()
MODELS = [
    facts_of(config)
    for config in (
        known.QWEN25_05B,
        known.QWEN25_7B,
        known.LLAMA_31_8B,
        known.LLAMA_2_13B,
        known.MIXTRAL_8X7B,
        known.DEEPSEEK_CODER_V2_LITE,
        known.LLAMA_3_70B,
        known.LLAMA_31_405B,
    )
]
CONFIG_FIELDS = ("tensor_parallel_size", "pipeline_parallel_size", "max_model_len", "gpu_memory_utilization")
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "gpus": st.integers(0, 10),
    "gpu_type": st.sampled_from(get_args(GpuType)),
    "nodes_per_worker": st.integers(1, 4),
    "cpus": st.sampled_from([1, "500m", 6.5, 60, 90, 150, 500]),
    "memory": st.sampled_from(["1Gi", "29Gi", "200G", "900Gi", "1.5Ti", "9Ti"]),
    "storage": st.sampled_from(["1Gi", "600Gi", "1Ti", "9Ti"]),
    "tensor_parallel_size": st.integers(1, 16),
    "pipeline_parallel_size": st.integers(1, 4),
    "max_model_len": st.sampled_from([512, 4096, 100_000]),
    "gpu_memory_utilization": st.sampled_from([0.3, 0.5, 0.95]),
}
# With just these a replica has GPUs of a kind, and as many nodes, as may be chosen unasked.
FREE = {
    **{name: FIELDS[name] for name in ("cpus", "memory", "storage", "tensor_parallel_size")},
    "gpus": st.integers(1, 8),
    "gpu_type": st.sampled_from([name for name, gpu in TABLE.gpu_types.items() if not gpu.only_on_request]),
}
models = st.sampled_from(MODELS)
asked = st.fixed_dictionaries({}, optional=FIELDS)


def request_for(fields: dict[str, Any]) -> Any:
    config = {name: value for name, value in fields.items() if name in CONFIG_FIELDS}
    return make_request(config=config, **{key: value for key, value in fields.items() if key not in config})


def chosen_for(facts: CheckpointFacts, fields: dict[str, Any]) -> Hardware | None:
    """What is chosen, or none if it is refused."""
    try:
        return infer_hardware(request_for(fields), facts, TABLE, gpus_available=True)
    except HardwareInvalid:
        return None


def fields_of(hardware: Hardware) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "cpus": format_cpus(hardware.cpus),
        "gpus": hardware.gpus,
        "memory": format_bytes(hardware.memory),
        "storage": format_bytes(hardware.storage),
        "nodes_per_worker": hardware.nodes_per_worker,
        "tensor_parallel_size": hardware.tensor_parallel_size,
        "pipeline_parallel_size": hardware.pipeline_parallel_size,
    }
    return fields if hardware.gpu_type is None else {**fields, "gpu_type": hardware.gpu_type}


@given(models, asked)
def test_a_refusal_names_fields(facts: CheckpointFacts, fields: dict[str, Any]) -> None:
    try:
        infer_hardware(request_for(fields), facts, TABLE, gpus_available=True)
    except HardwareInvalid as refused:
        errors = refused.errors
    else:
        return
    assert errors
    assert all(error.pointer.startswith("/") and error.message for error in errors)


@settings(max_examples=400, deadline=None)
@given(models, asked)
def test_a_chosen_plan_fits(facts: CheckpointFacts, fields: dict[str, Any]) -> None:
    hardware = chosen_for(facts, fields)
    if hardware is None:
        return
    gpu = TABLE.gpu_types[hardware.gpu_type] if hardware.gpu_type else None  # type: ignore[index]
    node = gpu.node if gpu else TABLE.cpu_node
    assert hardware.cpus <= node.cpus
    assert hardware.memory <= node.memory
    assert hardware.storage <= node.storage
    assert facts.attention_heads % hardware.tensor_parallel_size == 0
    assert hardware.pipeline_parallel_size <= facts.layers
    if gpu is None:
        return
    layout = Layout(hardware.tensor_parallel_size, hardware.pipeline_parallel_size)
    assert layout.gpus == hardware.gpus * hardware.nodes_per_worker
    assert hardware.gpus <= gpu.gpus_per_node
    setup = EngineSetup.of(request_for(fields).engine_config, {}, facts)
    assert needed_bytes(facts, setup, layout) <= usable_bytes(gpu, setup)


@settings(max_examples=400, deadline=None)
@given(models, asked)
def test_a_named_field_is_never_ignored(facts: CheckpointFacts, fields: dict[str, Any]) -> None:
    hardware = chosen_for(facts, fields)
    if hardware is None:
        return
    for name, value in fields.items():
        if name == "cpus":
            value = parse_cpus(value)
        elif name in ("memory", "storage"):
            value = parse_bytes(value, name)
        if hasattr(hardware, name):
            assert getattr(hardware, name) == value


@settings(max_examples=200, deadline=None)
@given(models, asked)
def test_naming_what_was_chosen_changes_nothing(facts: CheckpointFacts, fields: dict[str, Any]) -> None:
    hardware = chosen_for(facts, fields)
    if hardware is None:
        return
    again = chosen_for(facts, {**fields, **fields_of(hardware)})
    assert again is not None
    assert fields_of(again) == fields_of(hardware)


@settings(max_examples=300, deadline=None)
@given(models, st.fixed_dictionaries({}, optional=FREE), st.sampled_from(sorted(FREE)), st.data())
def test_leaving_a_field_open_never_makes_a_request_impossible(
    facts: CheckpointFacts, fields: dict[str, Any], name: str, data: st.DataObject
) -> None:
    named = {**fields, name: data.draw(FREE[name])}
    left_open = {key: value for key, value in named.items() if key != name}
    if chosen_for(facts, named) is not None:
        assert chosen_for(facts, left_open) is not None

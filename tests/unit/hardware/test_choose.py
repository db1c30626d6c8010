"""Hardware for known models, and requests that contradict themselves.

The original's choices, with which some are compared, come from its sample table: it weighs 20 sequences of
full length, forgets that a number in the cache has two bytes, and takes the size from the model's name.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from batch_pipelines.hardware.choose import Hardware, HardwareInvalid, infer_hardware
from batch_pipelines.hardware.gpus import HardwareTable, load_table
from batch_pipelines.hardware.quantities import GIB
from batch_pipelines.models.checkpoint_facts import CheckpointFacts
from tests.support import model_configs as known
from tests.support.hardware import facts_of, make_request

TABLE = load_table()
A10, A100, A100E = "nvidia-ampere-a10", "nvidia-ampere-a100", "nvidia-ampere-a100e"
T4, H100, SLICE = "nvidia-tesla-t4", "nvidia-hopper-h100", "nvidia-hopper-h100-1g20gb"
LLAMA = facts_of(known.LLAMA_3_8B)
LLAMA_70B = facts_of(known.LLAMA_3_70B)


def choose(
    facts: CheckpointFacts | None = LLAMA,
    *,
    table: HardwareTable = TABLE,
    gpus_available: bool = True,
    defaults: Mapping[str, object] | None = None,
    **fields: Any,
) -> Hardware:
    return infer_hardware(
        make_request(**fields), facts, table, gpus_available=gpus_available, engine_defaults=defaults
    )


def refusals(facts: CheckpointFacts | None = LLAMA, **fields: Any) -> dict[str, str]:
    with pytest.raises(HardwareInvalid) as refused:
        choose(facts, **fields)
    found: dict[str, str] = {}
    for error in refused.value.errors:
        found[error.pointer] = f"{found.get(error.pointer, '')}{error.message}"
    return found


def size(hardware: Hardware) -> tuple[int, str | None, int, int, int]:
    return (
        hardware.gpus,
        hardware.gpu_type,
        hardware.nodes_per_worker,
        hardware.tensor_parallel_size,
        hardware.pipeline_parallel_size,
    )


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (known.QWEN25_05B, (1, A10, 1, 1, 1)),  # the original takes it for 5 billion parameters
        (known.QWEN25_7B, (1, A10, 1, 1, 1)),  # the original cannot read this name
        (known.LLAMA_3_8B, (1, A100, 1, 1, 1)),  # the original: 2 A10, or 40 GB of an H100
        # The original: 2 A10 or 1 H100. 40 key-value heads make a long cache: 25 GiB for 32 short sequences.
        (known.LLAMA_2_13B, (1, A100E, 1, 1, 1)),
        (known.MIXTRAL_8X7B, (2, A100E, 1, 2, 1)),  # as many as the original's
        (known.LLAMA_3_70B, (4, A100E, 1, 4, 1)),  # as many as the original's
        (known.QWEN2_72B, (4, A100E, 1, 4, 1)),  # as many as the original's
        (known.CODELLAMA_34B, (1, A100E, 1, 1, 1)),  # the original: 2, for 20 sequences of 16,384 tokens
        (known.LLAMA_31_8B, (1, A100, 1, 1, 1)),  # the original: 4 H100, for 20 sequences of 131,072 tokens
        (known.DEEPSEEK_CODER_V2_LITE, (1, A100, 1, 1, 1)),  # the original: 8 H100, as if it had no MLA
        (known.LLAMA_31_405B, (8, H100, 2, 8, 2)),  # the original: an error
        (known.DEEPSEEK_V3, (8, H100, 2, 8, 2)),
    ],
)
def test_known_models_get_the_fewest_gpus_that_hold_them(
    config: Mapping[str, Any], expected: tuple[int, str, int, int, int]
) -> None:
    assert size(choose(facts_of(config))) == expected


def test_cpus_memory_and_disk_follow_from_gpus_and_weights() -> None:
    chosen = choose(LLAMA_70B)
    assert chosen.cpus == 40_000
    assert chosen.memory == (16 + 4 * 8 + 132) * GIB
    assert chosen.storage == (50 + 132) * GIB


def test_quantized_checkpoint_needs_less() -> None:
    quantized = {**known.LLAMA_3_70B, "quantization_config": {"quant_method": "awq", "bits": 4}}
    assert size(choose(facts_of(quantized))) == (1, A100E, 1, 1, 1)


@pytest.mark.parametrize("name", ["max_model_len", "max_context_length"])
def test_shorter_context_fits_a_smaller_gpu(name: str) -> None:
    facts = facts_of(known.LLAMA_31_8B)
    assert "/gpus" in refusals(facts, gpus=1, gpu_type=A10)
    assert size(choose(facts, gpus=1, gpu_type=A10, config={name: 4096})) == (1, A10, 1, 1, 1)


def test_deployments_own_settings_count_where_the_request_has_none() -> None:
    facts = facts_of(known.LLAMA_31_8B)
    small = choose(facts, gpus=1, gpu_type=A10, defaults={"max_model_len": 4096})
    assert small.gpus == 1
    assert choose(facts, defaults={"tensor_parallel_size": 2}).tensor_parallel_size == 2


def test_low_memory_utilization_takes_larger_gpus() -> None:
    assert size(choose(config={"gpu_memory_utilization": 0.5})) == (1, A100E, 1, 1, 1)


def test_t4_is_taken_only_if_named() -> None:
    tiny = facts_of(known.QWEN25_05B)
    assert choose(tiny).gpu_type == A10
    assert choose(tiny, gpu_type=T4).gpu_type == T4


class TestGiven:
    """Named fields are kept, and the others are filled in to fit."""

    def test_gpu_type_alone_gets_as_many_as_needed(self) -> None:
        assert size(choose(LLAMA_70B, gpu_type=A100)) == (8, A100, 1, 8, 1)
        assert size(choose(LLAMA, gpu_type=A10)) == (2, A10, 1, 2, 1)

    def test_number_alone_gets_the_cheapest_type_that_fits(self) -> None:
        assert size(choose(LLAMA_70B, gpus=8)) == (8, A100, 1, 8, 1)
        assert size(choose(LLAMA, gpus=2)) == (2, A10, 1, 2, 1)

    def test_all_five_pass_through(self) -> None:
        chosen = choose(cpus=1, gpus=1, memory="8G", gpu_type=H100, storage="10G")
        assert (chosen.cpus, chosen.memory, chosen.storage) == (1000, 8 * 10**9, 10 * 10**9)
        assert size(chosen) == (1, H100, 1, 1, 1)

    def test_cpus_rule_out_small_nodes(self) -> None:
        assert choose(cpus=100).gpu_type == H100
        assert choose(cpus=100).cpus == 100_000

    def test_memory_and_storage_rule_out_small_nodes(self) -> None:
        assert choose(memory="1.5Ti").gpu_type == H100
        assert choose(storage="1Ti").gpu_type == H100

    def test_nodes_are_kept(self) -> None:
        chosen = choose(nodes_per_worker=2, gpus=1, gpu_type=A100)
        assert size(chosen) == (1, A100, 2, 1, 2)

    def test_parallel_sizes_decide_how_many_gpus(self) -> None:
        assert size(choose(config={"tensor_parallel_size": 2})) == (2, A10, 1, 2, 1)
        assert size(choose(config={"pipeline_parallel_size": 2})) == (2, A10, 1, 1, 2)
        both = {"tensor_parallel_size": 4, "pipeline_parallel_size": 2}
        assert size(choose(config=both)) == (8, A100, 1, 4, 2)
        assert size(choose(gpus=4, gpu_type=A10, config=both)) == (4, A10, 2, 4, 2)

    def test_num_shards_is_the_tensor_size_unless_it_is_the_old_clients_default(self) -> None:
        assert choose(config={"num_shards": 4}).tensor_parallel_size == 4
        assert choose(LLAMA_70B, config={"num_shards": 1}).tensor_parallel_size == 4
        assert choose(config={"num_shards": 4, "tensor_parallel_size": 2}).tensor_parallel_size == 2

    def test_number_that_heads_do_not_divide_by_goes_to_layers(self) -> None:
        assert size(choose(gpus=3)) == (3, A10, 1, 1, 3)
        assert size(choose(gpus=6, gpu_type=A100)) == (6, A100, 1, 2, 3)

    def test_gpus_with_little_room_are_kept_and_told(self) -> None:
        chosen = choose(gpus=1, gpu_type=A10)
        assert any("little room" in reason for reason in chosen.reasons)

    def test_reasons_tell_what_was_asked(self) -> None:
        chosen = choose(gpus=1, memory="64Gi")
        assert any("gpus as asked" in reason for reason in chosen.reasons)
        assert "memory 64Gi: as asked" in chosen.reasons


class TestRefused:
    """Contradictions, each at its field, all at once."""

    def test_too_little_gpu_memory_says_what_would_do(self) -> None:
        message = refusals(LLAMA_70B, gpus=1, gpu_type=H100)["/gpus"]
        for part in ("131.4 GiB of weights", "8,192 tokens", f"take 4 x {A100E}"):
            assert part in message

    def test_too_long_a_context_says_which_would_fit(self) -> None:
        facts = facts_of(known.LLAMA_31_8B)
        message = refusals(facts, gpus=1, gpu_type=A10)["/gpus"]
        longest = int(message.split("max_model_len to ")[1].split(" ")[0])
        assert choose(facts, gpus=1, gpu_type=A10, config={"max_model_len": longest}).gpus == 1

    def test_type_that_cannot_hold_the_model(self) -> None:
        assert "8 x nvidia-tesla-t4 hold too little" in refusals(LLAMA_70B, gpu_type=T4)["/gpu_type"]
        assert "/gpu_type" in refusals(LLAMA_70B, gpu_type=SLICE)

    def test_model_that_nothing_holds(self) -> None:
        huge = replace(LLAMA_70B, parameters=2 * 10**12, weight_bytes=4 * 10**12)
        assert "set nodes_per_worker" in refusals(huge)["/model_config/model"]
        assert choose(huge, nodes_per_worker=8).nodes_per_worker == 8

    def test_more_gpus_than_a_node_has(self) -> None:
        assert "node with nvidia-ampere-a10 has 4" in refusals(gpus=8, gpu_type=A10)["/gpus"]
        assert "the largest node has 8" in refusals(gpus=16)["/gpus"]

    def test_everything_wrong_is_told_at_once(self) -> None:
        wrong = refusals(
            cpus=100, gpus=8, gpu_type=A10, memory="1Ti", storage="2Ti", config={"tensor_parallel_size": 3}
        )
        tensor = "/model_config/tensor_parallel_size"
        assert set(wrong) == {"/cpus", "/gpus", "/memory", "/storage", tensor}
        assert wrong["/cpus"] == f"100 is more than a node with {A10} has, 63"
        assert "32 attention heads" in wrong[tensor]

    def test_unreadable_quantities_do_not_hide_other_errors(self) -> None:
        wrong = refusals(cpus="many", memory=32, gpus=16)
        assert set(wrong) == {"/cpus", "/memory", "/gpus"}

    @pytest.mark.parametrize("given", [{"gpu_type": A10}, {}])
    def test_no_node_has_that_much(self, given: dict[str, Any]) -> None:
        assert set(refusals(cpus=1000, memory="10Ti", storage="10Ti", **given)) == {
            "/cpus",
            "/memory",
            "/storage",
        }

    def test_gpu_type_without_gpus(self) -> None:
        assert refusals(gpus=0, gpu_type=T4) == {"/gpu_type": "nvidia-tesla-t4 is named, but gpus is 0"}

    def test_type_the_deployment_does_not_have(self) -> None:
        table = TABLE.model_copy(update={"gpu_types": {A10: TABLE.gpu_types["nvidia-ampere-a10"]}})
        assert refusals(gpu_type=H100, table=table) == {
            "/gpu_type": f"this deployment has no {H100}; it has {A10}"
        }

    def test_sizes_that_do_not_come_out_at_the_gpus(self) -> None:
        pointer = "/model_config/tensor_parallel_size"
        both = {"tensor_parallel_size": 4, "pipeline_parallel_size": 2}
        message = refusals(gpus=4, nodes_per_worker=1, config=both)[pointer]
        assert (
            message
            == "4 times pipeline_parallel_size 2 needs 8 GPUs, but gpus 4 times nodes_per_worker 1 is 4"
        )
        assert "does not divide the GPUs" in refusals(gpus=2, config={"tensor_parallel_size": 4})[pointer]
        assert "does not divide" in refusals(gpus=2, config={"num_shards": 4})["/model_config/num_shards"]
        pipeline = refusals(gpus=4, config={"pipeline_parallel_size": 3})
        assert "/model_config/pipeline_parallel_size" in pipeline

    def test_more_stages_than_layers(self) -> None:
        wrong = refusals(config={"pipeline_parallel_size": 64})
        assert "32 layers" in wrong["/model_config/pipeline_parallel_size"]

    def test_heads_of_keys_must_come_out_too(self) -> None:
        odd = replace(LLAMA, attention_heads=48, kv_heads=8)
        assert (
            "8 key-value heads"
            in refusals(odd, config={"tensor_parallel_size": 6})["/model_config/tensor_parallel_size"]
        )

    def test_slices_cannot_share_a_model(self) -> None:
        assert "slice of a GPU" in refusals(gpu_type=SLICE, nodes_per_worker=2)["/nodes_per_worker"]

    def test_fields_that_only_together_cannot_be(self) -> None:
        message = refusals(gpu_type=SLICE, config={"tensor_parallel_size": 2})["/gpu_type"]
        assert message.endswith("at once: gpu_type, tensor_parallel_size")


class TestWithoutGpus:
    """A deployment, or a request, without GPUs."""

    TINY = facts_of(known.QWEN25_05B)

    @pytest.mark.parametrize("given", [{}, {"gpus": 0}])
    def test_request_runs_on_cpus(self, given: dict[str, Any]) -> None:
        chosen = choose(self.TINY, gpus_available=False, **given)
        assert size(chosen) == (0, None, 1, 1, 1)
        assert (chosen.cpus, chosen.memory) == (7000, 17 * GIB)

    def test_request_may_ask_for_none_where_there_are_some(self) -> None:
        assert choose(self.TINY, gpus=0, cpus="500m").cpus == 500

    def test_model_need_not_be_known(self) -> None:
        assert choose(None, gpus_available=False).memory == TABLE.cpu_node.memory

    def test_gpus_are_refused(self) -> None:
        wrong = refusals(self.TINY, gpus_available=False, gpus=2, gpu_type=A10)
        assert set(wrong) == {"/gpus", "/gpu_type"}

    def test_weights_must_fit_the_memory(self) -> None:
        assert "131.4 GiB" in refusals(LLAMA_70B, gpus=0)["/gpus"]
        assert "15.0 GiB" in refusals(gpus=0, memory="8Gi")["/memory"]

    def test_everything_wrong_is_told_at_once(self) -> None:
        wrong = refusals(
            gpus=0, nodes_per_worker=2, cpus=64, storage="9Ti", config={"tensor_parallel_size": 5}
        )
        assert set(wrong) == {
            "/nodes_per_worker", "/cpus", "/storage", "/model_config/tensor_parallel_size",
        }  # fmt: skip

    def test_tensor_size_is_kept(self) -> None:
        assert choose(self.TINY, gpus=0, config={"tensor_parallel_size": 2}).tensor_parallel_size == 2


class TestUnknownModel:
    """No configuration can be read."""

    @pytest.mark.parametrize("name", ["Qwen2.5-7B-Instruct", "qwen2.5-7b", "Qwen/Qwen2.5-7B"])
    def test_size_in_the_name_is_used_and_called_a_guess(self, name: str) -> None:
        chosen = choose(None, model=name)
        assert chosen.gpus == 1
        assert any("a guess" in reason for reason in chosen.reasons)

    def test_name_without_a_size_needs_hardware(self) -> None:
        assert "set gpus or gpu_type" in refusals(None, model="phi-4")["/model_config/model"]

    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ({"gpus": 2}, (2, H100, 1, 2, 1)),  # the largest, for want of facts
            ({"gpu_type": A10}, (1, A10, 1, 1, 1)),
            ({"gpus": 2, "gpu_type": A10}, (2, A10, 1, 2, 1)),
            ({"gpus": 2, "gpu_type": A10, "nodes_per_worker": 2}, (2, A10, 2, 2, 2)),
        ],
    )
    def test_named_hardware_is_taken_unchecked(
        self, given: dict[str, Any], expected: tuple[int, str, int, int, int]
    ) -> None:
        chosen = choose(None, model="phi-4", **given)
        assert size(chosen) == expected
        assert any("not checked" in reason for reason in chosen.reasons)

    def test_size_that_nothing_holds_is_refused(self) -> None:
        assert "/model_config/model" in refusals(None, model="x-999b")

    def test_guess_refuses_no_named_hardware(self) -> None:
        assert size(choose(None, model="x-999b", gpus=1, gpu_type=A10)) == (1, A10, 1, 1, 1)
        assert choose(None, model="x-999b", gpus=4).gpus == 4

    def test_contradictions_are_found_all_the_same(self) -> None:
        assert set(refusals(None, model="phi-4", gpus=8, gpu_type=A10, cpus=100)) == {"/gpus", "/cpus"}

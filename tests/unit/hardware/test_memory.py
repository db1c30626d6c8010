"""GPU memory of a replica: each part by hand, and how settings change it."""

from typing import Any

import pytest

from batch_pipelines.hardware.gpus import load_table
from batch_pipelines.hardware.memory import (
    EngineSetup,
    Layout,
    cache_bytes,
    loaded_bytes,
    longest_context,
    needed_bytes,
    usable_bytes,
    useful_bytes,
)
from batch_pipelines.models.checkpoint_facts import CheckpointFacts
from tests.support import model_configs as known
from tests.support.hardware import facts_of, make_request

ALONE = Layout(1, 1)
GIB = 2**30
LLAMA = facts_of(known.LLAMA_3_8B)
H100 = load_table().gpu_types["nvidia-hopper-h100"]
A10 = load_table().gpu_types["nvidia-ampere-a10"]


def setup_of(
    facts: CheckpointFacts = LLAMA, *, defaults: dict[str, object] | None = None, **config: Any
) -> EngineSetup:
    return EngineSetup.of(make_request(config=config).engine_config, defaults or {}, facts)


def test_weights_take_two_bytes_a_parameter() -> None:
    assert loaded_bytes(LLAMA, setup_of()) == 2 * 8_030_261_248
    assert loaded_bytes(LLAMA, setup_of(dtype="float32")) == 4 * 8_030_261_248


def test_checkpoint_in_32_bits_is_loaded_in_16() -> None:
    wide = facts_of({**known.LLAMA_3_8B, "torch_dtype": "float32"})
    assert wide.weight_bytes == 2 * LLAMA.weight_bytes
    assert loaded_bytes(wide, setup_of(wide)) == loaded_bytes(LLAMA, setup_of())


def test_quantized_checkpoint_stays_as_it_is_stored() -> None:
    quantized = facts_of({**known.LLAMA_3_8B, "quantization_config": {"quant_method": "awq", "bits": 4}})
    assert loaded_bytes(quantized, setup_of(quantized)) == quantized.weight_bytes < LLAMA.weight_bytes / 2


def test_quantization_by_the_engine_leaves_embeddings_alone() -> None:
    embeddings = 2 * 128_256 * 4096
    expected = 2 * embeddings + (8_030_261_248 - embeddings)
    assert loaded_bytes(LLAMA, setup_of(quantization="fp8")) == expected


def test_cache_of_a_token_is_keys_and_values_of_all_layers() -> None:
    assert cache_bytes(LLAMA, setup_of(), ALONE, 1) == 32 * 2 * 8 * 128 * 2
    assert cache_bytes(LLAMA, setup_of(cache_dtype="fp8"), ALONE, 1) == 32 * 2 * 8 * 128


@pytest.mark.parametrize(
    ("layout", "part"), [(Layout(2, 1), 2), (Layout(8, 1), 8), (Layout(16, 1), 8), (Layout(2, 2), 4)]
)
def test_cache_is_spread_over_heads_and_layers_and_no_further(layout: Layout, part: int) -> None:
    whole = cache_bytes(LLAMA, setup_of(), ALONE, 1000)
    assert cache_bytes(LLAMA, setup_of(), layout, 1000) == whole / part


def test_latent_cache_is_one_vector_on_every_gpu() -> None:
    facts = facts_of(known.DEEPSEEK_CODER_V2_LITE)
    assert cache_bytes(facts, setup_of(facts), ALONE, 1) == 27 * 576 * 2
    assert cache_bytes(facts, setup_of(facts), Layout(8, 1), 1) == 27 * 576 * 2


def test_sliding_layers_cache_their_window() -> None:
    facts = facts_of(known.MISTRAL_7B_V01)
    within, beyond = (cache_bytes(facts, setup_of(facts), ALONE, tokens) for tokens in (4096, 32_768))
    assert within == beyond == 4096 * 32 * 2 * 8 * 128 * 2


def test_layers_with_a_state_cache_nothing() -> None:
    facts = facts_of({**known.LLAMA_3_8B, "full_attention_interval": 4})
    assert cache_bytes(facts, setup_of(), ALONE, 1000) == cache_bytes(LLAMA, setup_of(), ALONE, 1000) / 4


@pytest.mark.parametrize(
    ("config", "defaults", "context"),
    [
        ({}, {}, 8192),
        ({"max_model_len": 4096}, {}, 4096),
        ({"max_context_length": 4096}, {}, 4096),
        ({"max_model_len": 2048, "max_context_length": 4096}, {}, 2048),
        ({}, {"max_model_len": 1024}, 1024),
        ({"max_context_length": 4096}, {"max_model_len": 1024}, 4096),
        ({"max_model_len": -1}, {}, None),
    ],
)
def test_context_is_the_requests_then_the_deployments_then_the_models(
    config: dict[str, Any], defaults: dict[str, object], context: int | None
) -> None:
    assert setup_of(defaults=defaults, **config).context == context


def test_gpu_memory_utilization_of_the_request_is_kept() -> None:
    # The original sets 0.9 whatever the request says.
    assert usable_bytes(H100, setup_of(gpu_memory_utilization=0.5)) == H100.memory // 2
    assert setup_of(defaults={"gpu_memory_utilization": 0.6}).utilization == 0.6
    assert setup_of(gpu_memory_utilization=0.5, defaults={"gpu_memory_utilization": 0.6}).utilization == 0.5


def test_least_need_is_weights_and_one_longest_sequence() -> None:
    weights, cache = loaded_bytes(LLAMA, setup_of()), cache_bytes(LLAMA, setup_of(), ALONE, 8192)
    assert needed_bytes(LLAMA, setup_of(), ALONE) == weights + cache
    assert needed_bytes(LLAMA, setup_of(), Layout(2, 1)) == (weights + cache) / 2
    assert needed_bytes(LLAMA, setup_of(max_model_len=-1), ALONE) == weights


@pytest.mark.parametrize("name", ["max_model_len", "max_context_length"])
def test_shorter_context_needs_less(name: str) -> None:
    # The original looks at max_context_length alone.
    facts = facts_of(known.LLAMA_31_8B)
    shorter: dict[str, Any] = {name: 4096}
    long, short = setup_of(facts), setup_of(facts, **shorter)
    less = 16 * GIB - 32 * 1024 * 131_072  # one sequence of 131,072 tokens, or 32 of 1,024
    assert useful_bytes(facts, long, ALONE, H100) - useful_bytes(facts, short, ALONE, H100) == less
    assert needed_bytes(facts, short, ALONE) < needed_bytes(facts, long, ALONE)


@pytest.mark.parametrize(
    "config", [{"max_num_seqs": 4}, {"enforce_eager": True}, {"max_num_batched_tokens": 512}]
)
def test_modest_settings_need_less(config: dict[str, Any]) -> None:
    modest = useful_bytes(LLAMA, setup_of(**config), ALONE, H100)
    assert needed_bytes(LLAMA, setup_of(), ALONE) < modest < useful_bytes(LLAMA, setup_of(), ALONE, H100)


def test_smaller_gpus_start_with_smaller_batches() -> None:
    assert useful_bytes(LLAMA, setup_of(), ALONE, A10) < useful_bytes(LLAMA, setup_of(), ALONE, H100)


def test_longest_context_just_fits() -> None:
    facts = facts_of(known.LLAMA_31_8B)
    longest = longest_context(facts, setup_of(facts), ALONE, A10)
    fits, too_long = (
        needed_bytes(facts, setup_of(facts, max_model_len=n), ALONE) for n in (longest, longest + 1)
    )
    assert fits <= usable_bytes(A10, setup_of(facts)) < too_long


def test_no_context_fits_beside_weights_that_do_not() -> None:
    facts = facts_of(known.LLAMA_3_70B)
    assert longest_context(facts, setup_of(facts), ALONE, A10) == 0

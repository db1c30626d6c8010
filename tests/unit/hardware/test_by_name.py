"""Sizes stated by names: the last resort."""

import pytest

from batch_pipelines.hardware.by_name import guess_facts, parameters_in_name


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        # The original reads the last `<digits>b` in lower case: an error for the first six, 5 for the next.
        ("Qwen2.5-7B-Instruct", 7),
        ("Qwen/Qwen2.5-7B", 7),
        ("QWEN2.5-7B", 7),
        ("qwen2.5 7b", 7),
        ("Qwen2.5_7B", 7),
        ("Meta-Llama-3-8B-Instruct", 8),
        ("qwen2.5-0.5b", 0.5),
        ("qwen2.5-7b", 7),
        ("llama-2-13b", 13),
        ("codellama-34b-instruct", 34),
        ("llama-3-8b-instruct-262k", 8),
        ("SmolLM2-135M-Instruct", 0.135),
        ("Qwen3-30B-A3B", 30),  # 3 billion are active, 30 are loaded
        ("Mixtral-8x7B-Instruct-v0.1", 46.7),  # published; eight times seven would be 56
        ("mixtral-8x22b", 140.6),
        ("my-moe-4x2B", 8),  # experts times size, the stated rule: an upper bound
        ("x-999b", 999),
        ("merge-7b-with-13b", 13),
    ],
)
def test_size_is_read_in_any_spelling(name: str, billions: float) -> None:
    assert parameters_in_name(name) == pytest.approx(billions * 1e9)


@pytest.mark.parametrize(
    "name",
    ["phi-4", "gpt2", "mistral-large", "deepseek-v3", "model-b", "7", "", "llama-3.1", "b7b", "phi-3-mini-4k",
     "Llama-4-Scout-17B-16E-Instruct", "x-0b", "gemma-3n-E4B"],
)  # fmt: skip
def test_name_without_a_size_tells_nothing(name: str) -> None:
    assert parameters_in_name(name) is None
    assert guess_facts(name) is None


def test_guess_has_a_shape_like_models_of_its_size() -> None:
    small, large = guess_facts("x-8b"), guess_facts("x-405b")
    assert small is not None
    assert large is not None
    assert (small.layers, small.hidden_size, small.kv_heads * small.head_dim) == (32, 4096, 1024)
    assert small.weight_bytes == 16_000_000_000
    assert large.layers > small.layers

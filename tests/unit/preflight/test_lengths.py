"""Prompts against the context, counted by the helper where their bytes are suspicious."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from batch_pipelines.preflight.lengths import BytesPerToken, Lengths
from batch_pipelines.preflight.model_preflight import ModelPreflight
from batch_pipelines.preflight.settings import PreflightSettings
from tests.unit.preflight.model_files import chat, words, write_model

CONTEXT = 100


@pytest.fixture
def preflight(model: Path) -> Iterator[ModelPreflight]:
    with ModelPreflight(model, PreflightSettings(context=CONTEXT)) as preflight:
        yield preflight


def check(preflight: ModelPreflight, item: Any) -> str | None:
    kind: Any = "v1" if isinstance(item, str) else "chat" if "messages" in item else "completion"
    error = preflight.check(kind, item, len(orjson.dumps(item)))
    return error.message if error is not None else None


def test_texts_just_within_and_just_beyond(preflight: ModelPreflight) -> None:
    assert check(preflight, {"prompt": words(99)}) is None
    said = check(preflight, {"prompt": words(100)})
    assert said is not None
    assert said.startswith(
        "prompt: has 100 tokens; prompt and answer together may have 100, and the answer needs"
    )
    assert check(preflight, {"prompt": ["a", words(100)]}) == said.replace("prompt: ", "prompt[1]: ")
    assert check(preflight, words(99)) is None
    assert check(preflight, words(100)) == said


def test_what_the_tokenizer_adds_counts_unless_it_is_told_not_to(tmp_path: Path) -> None:
    folder = write_model(tmp_path, begins=True)
    with ModelPreflight(folder, PreflightSettings(context=CONTEXT)) as preflight:
        assert check(preflight, {"prompt": words(98)}) is None
        assert check(preflight, {"prompt": words(99)}) is not None
        assert check(preflight, {"prompt": words(99), "add_special_tokens": False}) is None
        assert check(preflight, {"prompt": ["a", ""]}) is None


def test_an_empty_text_to_which_the_tokenizer_adds_nothing(preflight: ModelPreflight) -> None:
    said = check(preflight, {"prompt": ["a", ""]})
    assert said == "prompt[1]: is empty, and the model's tokenizer begins no text with a token"


def test_a_chat_is_counted_as_its_template_renders_it(preflight: ModelPreflight) -> None:
    around = len("<|user|>") + len("<|assistant|>")  # of which every byte is a token
    assert check(preflight, chat(words(99 - around))) is None
    said = check(preflight, chat(words(100 - around)))
    assert said is not None
    assert said.startswith("messages: have 100 tokens; ")
    without = {"add_generation_prompt": False}
    assert check(preflight, chat(words(100 - around), **without)) is None


def test_a_chat_with_an_image_is_left_to_the_engine(model: Path) -> None:
    parts = [
        {"type": "text", "text": words(500)},
        {"type": "image_url", "image_url": {"url": "data:;base64,"}},
    ]
    settings = PreflightSettings(context=CONTEXT, vision=True)
    with ModelPreflight(model, settings) as preflight:
        assert check(preflight, {"messages": [{"role": "user", "content": parts}]}) is None
        assert check(preflight, {"messages": [{"role": "user", "content": parts[:1]}]}) is not None


def test_a_chat_that_only_the_models_own_template_refuses_is_left_to_the_engine(tmp_path: Path) -> None:
    folder = write_model(tmp_path, template="{{ raise_exception('no ' + messages[0].role) }}")
    with ModelPreflight(folder, PreflightSettings(context=CONTEXT)) as preflight:
        assert check(preflight, chat(words(500))) is None


def test_a_very_long_text_is_counted_only_as_far_as_needed(preflight: ModelPreflight) -> None:
    said = check(preflight, {"prompt": words(2_000_000)})
    assert said is not None
    assert said.startswith("prompt: has at least ")


def test_without_a_context_nothing_is_counted(model: Path) -> None:
    with ModelPreflight(model, PreflightSettings()) as preflight:
        assert check(preflight, {"prompt": words(5000), "max_tokens": 10**9}) is None


def test_without_a_tokenizer_file_texts_are_left_to_the_engine(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    (folder / "tokenizer.json").rename(folder / "tokenizer.model")
    with ModelPreflight(folder, PreflightSettings(context=CONTEXT)) as preflight:
        assert check(preflight, {"prompt": words(5000)}) is None
        assert check(preflight, {"prompt": [5] * 100}) is not None


def test_a_tokenizer_that_cannot_be_loaded_leaves_texts_to_the_engine(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    (folder / "tokenizer.json").write_text("{}")
    with ModelPreflight(folder, PreflightSettings(context=CONTEXT)) as preflight:
        assert check(preflight, {"prompt": words(5000)}) is None
        assert check(preflight, {"prompt": ["a", ""]}) is None


def test_typical_text_is_not_counted_below_half_of_the_context() -> None:
    assert Lengths(1000, Counter()).suspicious_from == 2000


def test_counting_narrows_down_to_what_may_be_too_long_given_the_texts_so_far() -> None:
    density = BytesPerToken()
    for _ in range(31):
        density.learn(size=5000, tokens=1000)
    assert density.least == 2.0
    density.learn(size=4000, tokens=1000)
    assert density.least == pytest.approx(0.8 * 4.0)
    density.learn(size=1000, tokens=1000)
    assert density.least == 2.0


def test_fewer_items_are_counted_once_their_density_is_known() -> None:
    lengths = Lengths(1000, Counter())
    for _ in range(32):
        assert lengths.check_counts("completion", {}, [500], ["prompt"], size=2500) is None
    assert lengths.suspicious_from == pytest.approx(4000)

"""Images reach a model that takes them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batch_pipelines.engines.needs import NO_NEEDS
from batch_pipelines.models.smollm2 import ensure_smollm2
from batch_pipelines.settings import Settings
from tests.support.answers import Answers, engine_answers
from tests.support.vision_model import PATCHES, make_vision_model, picture

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

TEXT = {"type": "text", "text": "What is the capital of Japan?"}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    folder = make_vision_model(
        ensure_smollm2(Settings().models), tmp_path_factory.mktemp("models") / "vision"
    )
    with engine_answers(Path(folder), "vision", NO_NEEDS) as answers:
        yield answers


def ask(engine: Answers, *urls: str) -> dict[str, Any]:
    images = [{"type": "image_url", "image_url": {"url": url, "detail": "low"}} for url in urls]
    messages = [{"role": "user", "content": [TEXT, *images]}]
    return engine.chat(messages=messages, max_tokens=8, logprobs=True)


def likelihoods(record: dict[str, Any]) -> list[float]:
    return [token["logprob"] for token in record["choices"][0]["logprobs"]["content"]]


def test_an_image_is_part_of_the_prompt_and_of_the_answer(engine: Answers) -> None:
    without, red, blue = ask(engine), ask(engine, picture("red")), ask(engine, picture("blue"))
    assert "Tokyo" in red["choices"][0]["message"]["content"]
    assert red["usage"]["prompt_tokens"] >= without["usage"]["prompt_tokens"] + PATCHES
    assert likelihoods(red) != likelihoods(blue) != likelihoods(without)
    twice = ask(engine, picture("red"), picture("blue"))
    assert twice["usage"]["prompt_tokens"] > red["usage"]["prompt_tokens"]


def test_an_image_that_is_none_is_an_error_of_its_item(engine: Answers) -> None:
    broken = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    record = engine.record("chat", {"messages": [{"role": "user", "content": [TEXT, broken]}]})
    assert record["error"]["code"] == 400
    assert record["error"]["param"] == "messages"

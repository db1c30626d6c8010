"""Parts of messages: which kinds, which addresses, how many."""

from typing import Any

import pytest

from batch_pipelines.preflight.content import check_parts, has_images
from batch_pipelines.preflight.settings import PreflightSettings

SEEING = PreflightSettings(vision=True, media_domains=frozenset({"img.example.org"}))
BLIND = PreflightSettings()
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def image(url: str = PIXEL) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def text(content: str = "hi") -> dict[str, Any]:
    return {"type": "text", "text": content}


def message(settings: PreflightSettings, *parts: Any) -> str | None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": list(parts)},
    ]
    error = check_parts(messages, settings)
    return error.message if error is not None else None


@pytest.mark.parametrize(
    "url",
    [PIXEL, "DATA:image/png;base64,xx", "https://img.example.org/a.png", "https://IMG.example.org:443/a?b=c"],
)
def test_images_that_a_seeing_model_takes(url: str) -> None:
    assert message(SEEING, text(), image(url)) is None


def test_an_image_on_a_model_without_vision() -> None:
    assert message(BLIND, text()) is None
    said = message(BLIND, text(), image())
    assert said is not None
    assert said.startswith("messages[1].content[1]: is an image, and the model takes none")


def test_an_image_on_a_model_of_which_little_is_known() -> None:
    assert message(PreflightSettings(vision=None), image()) is None


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "http://img.example.org/a.png",
        "/etc/passwd",
        "ftp://img.example.org/a",
        "https://img.example.org@evil.example/a.png",
        "https://evil.example\\@img.example.org/a.png",
        "https://img.example.org/a.png\\@evil.example",
        "https://[::1]/a.png",
        " https://img.example.org/a.png",
        "https://img.example.org/a b",
        "",
    ],
)
def test_addresses_that_are_never_fetched(url: str) -> None:
    said = message(SEEING, image(url))
    assert said is not None
    assert said.startswith("messages[1].content[0].image_url.url: is ")


@pytest.mark.parametrize("url", ["https://evil.example/a.png", "https://img.example.org.evil.example/a.png"])
def test_a_host_that_the_deployment_does_not_name(url: str) -> None:
    said = message(SEEING, image(url))
    assert said is not None
    assert "lets the engine fetch from img.example.org (media_domains)" in said


def test_by_default_nothing_is_fetched() -> None:
    said = message(PreflightSettings(vision=True), image("https://img.example.org/a.png"))
    assert said is not None
    assert "lets the engine fetch from none (media_domains)" in said


def test_a_data_address_in_another_encoding() -> None:
    said = message(SEEING, image("data:image/svg+xml,<svg/>"))
    assert said is not None
    assert "without `;base64,`" in said


@pytest.mark.parametrize("kind", ["input_audio", "video_url", "audio_url", "image_embeds", "file", "Text"])
def test_parts_of_other_types(kind: str) -> None:
    said = message(SEEING, text(), {"type": kind, kind: "x"})
    assert said is not None
    assert said.startswith(f"messages[1].content[1]: is of type {kind!r}; only text, refusal and image_url")


def test_a_text_that_the_engine_would_take_for_an_image_of_that_name() -> None:
    said = message(SEEING, {**text(), "uuid": "u", "image_url": "file:///etc/passwd"})
    assert said is not None
    assert said.startswith("messages[1].content[0]: has a `uuid`")


def test_the_most_images_of_an_item() -> None:
    limited = PreflightSettings(vision=True, max_images=2)
    assert message(limited, image(), image()) is None
    said = message(limited, image(), image(), image())
    assert said == "messages: have 3 images; model_config.limit_mm_per_prompt is 2"


def test_where_there_are_images() -> None:
    assert has_images([{"content": "a"}, {"content": [text(), image()]}])
    assert not has_images([{"content": "image_url"}, {"content": [text()]}, {"content": None}, {}])

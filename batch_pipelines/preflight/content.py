"""Parts of messages that are not text: what the model takes, and from where the engine may fetch it."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from batch_pipelines.api.output import ItemError
from batch_pipelines.preflight.refusal import refusal
from batch_pipelines.preflight.settings import PreflightSettings

__all__ = ["check_parts", "has_images"]

_IMAGE: Final = "image_url"
_TEXTS: Final = frozenset({"text", "refusal"})
_DATA: Final = re.compile(r"data:[^,]*;base64,", re.IGNORECASE)
_WEB: Final = re.compile(r"https://([A-Za-z0-9.-]+)(?::\d+)?(?:[/?#][^\s\\]*)?")
"""Only addresses that all parsers read alike: no user names, no backslashes."""
_SHOWN: Final = 80


def has_images(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether any message has an image."""
    return any(
        part.get("type") == _IMAGE
        for message in messages
        if isinstance(message.get("content"), list)
        for part in message["content"]
    )


def check_parts(messages: Sequence[Mapping[str, Any]], settings: PreflightSettings) -> ItemError | None:
    """Check the contents of a chat that are lists of parts."""
    images = 0
    for place, message in enumerate(messages):
        parts = message.get("content")
        if type(parts) is not list:
            continue
        for at, part in enumerate(parts):
            path = f"messages[{place}].content[{at}]"
            kind = part["type"]
            if part.get("uuid") is not None:
                # vLLM then looks for an image, a video or a sound under any name, whatever the type says.
                return refusal(
                    path, "has a `uuid`; what an engine may have kept under it cannot be referred to"
                )
            if kind in _TEXTS:
                continue
            if kind != _IMAGE:
                return refusal(path, f"is of type {kind!r}; only text, refusal and image_url are supported")
            if settings.vision is False:
                return refusal(
                    path, "is an image, and the model takes none; use a vision model, or leave it out"
                )
            images += 1
            why = _refused_url(part["image_url"]["url"], settings.media_domains)
            if why is not None:
                return refusal(f"{path}.image_url.url", why)
    if settings.max_images is not None and images > settings.max_images:
        return refusal(
            "messages",
            f"have {images} images; model_config.limit_mm_per_prompt is {settings.max_images}",
        )
    return None


def _refused_url(url: str, hosts: frozenset[str]) -> str | None:
    if url[:5].lower() == "data:":
        return None if _DATA.match(url) else "is a data: URL without `;base64,`; the engine takes no other"
    web = _WEB.fullmatch(url)
    if web is None:
        return f"is {_short(url)!r}; give a data: URL, or one that begins with https:// and has no user name"
    host = web[1].lower()
    if host in hosts:
        return None
    allowed = ", ".join(sorted(hosts)) or "none"
    return (
        f"has the host {host!r}; this deployment lets the engine fetch from {allowed} (media_domains). "
        "Put the image into the item as a data: URL"
    )


def _short(url: str) -> str:
    return url if len(url) <= _SHOWN else f"{url[:_SHOWN]}..."

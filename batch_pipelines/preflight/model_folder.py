"""What a checkpoint's small files say of its tokenizer and its chat template.

Only files are read here; compiling, rendering and counting are the helper's. Where to look, and in which
order, is vLLM's and transformers' rule.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from batch_pipelines.preflight.settings import PreflightSettings

__all__ = ["ModelFolder", "read_model_folder"]

_TOKENIZER_FILES: Final = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer.model.*",
    "tekken.json",
    "spiece.model",
    "vocab.json",
    "vocab.txt",
    "*.tiktoken",
    "tiktoken.model",
)
_SPECIAL_TOKENS: Final = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
_OWN_RENDERING_MODES: Final = frozenset(
    {"mistral", "cohere", "deepseek_v32", "deepseek_v4", "deepseek_v41", "kimi_k3", "inkling", "terratorch"}
)
_OWN_RENDERING: Final = frozenset(
    {
        "DeepseekV32ForCausalLM",
        "DeepseekV4ForCausalLM",
        "DeepseekV4ForConditionalGeneration",
        "DeepseekV41ForCausalLM",
        "GptOssForCausalLM",
        "InklingForCausalLM",
        "InklingForConditionalGeneration",
        "KimiK3ForConditionalGeneration",
    }
)
"""Architectures whose chats vLLM 0.32 puts together in code of its own (`vllm/renderers`)."""
_CALLS_FOUND_ANYWAY: Final = frozenset({"GptOssForCausalLM"})
_TEMPLATES_OF_VLLM: Final = frozenset(
    {
        "blip-2", "clip", "colpali", "deepseek_ocr", "deepseek_ocr2", "deepseek_vl_v2", "minicpmv",
        "minicpmv4_6", "minicpmv4_7", "paligemma", "siglip", "siglip2", "unlimited-ocr", "unlimited_ocr",
    }
)  # fmt: skip
"""Model types for which vLLM 0.32 brings a template (`vllm/transformers_utils/chat_templates`)."""


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A checkpoint, as far as prompts are concerned.

    Attributes:
        tokenizer_json: The tokenizer as one file; none if it comes in another form.
        has_tokenizer: Whether it has a tokenizer in any form.
        templates: Chat templates by name; `default` for chats in general, `tool_use` for those with tools.
        special_tokens: Their names in templates, such as `bos_token`, and their texts.
        stop_ids: Tokens that end a text.
        own_rendering: Whether the engine renders this model's chats without a template.
        calls_found_anyway: Whether the engine finds its tool calls without a `tool_call_parser`.
        engine_has_template: Whether the engine brings a template for it.
    """

    tokenizer_json: Path | None
    has_tokenizer: bool
    templates: Mapping[str, str] = field(default_factory=dict)
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    stop_ids: tuple[int, ...] = ()
    own_rendering: bool = False
    calls_found_anyway: bool = False
    engine_has_template: bool = False

    def template(self, given: str | None, *, tools: bool) -> str | None:
        """The template of a chat, or none.

        Args:
            given: What replaces the checkpoint's: a template's text, or a name among `templates`.
            tools: Whether the chat has tools.
        """
        if given is not None:
            return self.templates.get(given, given)
        return (self.templates.get("tool_use") if tools else None) or self.templates.get("default")


def read_model_folder(folder: Path, settings: PreflightSettings) -> ModelFolder:
    """Read what there is; a file that is missing or not JSON counts as empty.

    Args:
        folder: The checkpoint's folder; its weights need not be there.
        settings: How the engine is set up.
    """
    tokens = settings.tokenizer_folder or folder
    config = _json(folder / "config.json")
    tokenizer = _json(tokens / "tokenizer_config.json")
    architectures = frozenset(_strings(config.get("architectures")))
    mode = settings.tokenizer_mode.lower()
    # Mistral's own format goes before tokenizer.json where both are there.
    mistral = mode == "mistral" or (mode == "auto" and _any(tokens, ("tekken.json", "tokenizer.model.v*")))
    file = tokens / "tokenizer.json"
    if settings.tokenizer_elsewhere:
        return ModelFolder(
            tokenizer_json=None,
            has_tokenizer=True,
            stop_ids=_stop_ids(_json(folder / "generation_config.json"), config),
            own_rendering=True,
            calls_found_anyway=not _CALLS_FOUND_ANYWAY.isdisjoint(architectures),
        )
    return ModelFolder(
        tokenizer_json=file if file.is_file() and not mistral else None,
        has_tokenizer=_any(tokens, _TOKENIZER_FILES),
        templates=_templates(tokens, tokenizer),
        special_tokens=_special_tokens(tokenizer, _json(tokens / "special_tokens_map.json")),
        stop_ids=_stop_ids(_json(folder / "generation_config.json"), config),
        own_rendering=mistral or mode in _OWN_RENDERING_MODES or not _OWN_RENDERING.isdisjoint(architectures),
        calls_found_anyway=mistral or not _CALLS_FOUND_ANYWAY.isdisjoint(architectures),
        engine_has_template=config.get("model_type") in _TEMPLATES_OF_VLLM,
    )


def _templates(folder: Path, tokenizer: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    given = tokenizer.get("chat_template")
    if isinstance(given, str):
        found["default"] = given
    elif isinstance(given, list):
        entries = [entry for entry in given if isinstance(entry, Mapping)]
        found = {each["name"]: each["template"] for each in entries if {"name", "template"} <= each.keys()}
    whole = _json(folder / "chat_template.json").get("chat_template")
    if isinstance(whole, str):
        found["default"] = whole
    for file in sorted(folder.glob("additional_chat_templates/*.jinja")):
        found[file.stem] = file.read_text(errors="replace")
    single = folder / "chat_template.jinja"
    if single.is_file():
        found["default"] = single.read_text(errors="replace")
    return found


def _special_tokens(*files: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for file in files:
        for name in _SPECIAL_TOKENS:
            value = file.get(name)
            text = value.get("content") if isinstance(value, dict) else value
            if isinstance(text, str):
                found.setdefault(name, text)
    return found


def _stop_ids(*files: Mapping[str, Any]) -> tuple[int, ...]:
    for file in files:
        value = file.get("eos_token_id")
        ids = value if isinstance(value, list) else [value]
        if ids and all(isinstance(token, int) for token in ids):
            return tuple(ids)
    return ()


def _strings(value: Any) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def _any(folder: Path, patterns: tuple[str, ...]) -> bool:
    return any(next(folder.glob(pattern), None) is not None for pattern in patterns)


def _json(path: Path) -> dict[str, Any]:
    try:
        value = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return value if isinstance(value, dict) else {}

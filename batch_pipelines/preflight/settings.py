"""What a preflight needs to know beside the checkpoint: how the engine will be set up, and its own limits."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["PreflightSettings"]


@dataclass(frozen=True, slots=True)
class PreflightSettings:
    """How the engine of a job is set up, and how long a check may take.

    Attributes:
        context: Longest prompt and answer together, in tokens; None to not check lengths.
        vocab_size: Rows of the model's embedding; None to not check token ids.
        chat_template: Text of the template that replaces the checkpoint's own.
        tokenizer_folder: Where the tokenizer's files are, if not in the checkpoint's folder.
        tokenizer_elsewhere: Whether the engine takes a tokenizer that is not at hand, so that nothing can be
            said of texts and of the template.
        tokenizer_mode: The engine's setting of that name; some modes render chats without a template.
        skip_tokenizer: Whether the engine starts without a tokenizer.
        vision: Whether the model takes images; None if that is not known.
        max_images: Most images in one item; None for the engine's own limit.
        media_domains: Hosts from which the engine may fetch images.
        auto_tools: Whether the engine can find calls that the model makes of its own accord.
        structured_backend: The engine's library for forms of text; `auto` if it is left to the first item.
        compile_sec: Longest a grammar, a template or a text may take to be compiled, rendered or counted.
        token_sec: Longest a grammar may take to find which tokens may come next, on average over a probe.
        memory_bytes: Memory that one such attempt may take beyond what the helper has anyway.
        max_form_bytes: Largest schema, grammar, list of choices or pattern, as JSON.
    """

    context: int | None = None
    vocab_size: int | None = None
    chat_template: str | None = None
    tokenizer_folder: Path | None = None
    tokenizer_elsewhere: bool = False
    tokenizer_mode: str = "auto"
    skip_tokenizer: bool = False
    vision: bool | None = False
    max_images: int | None = None
    media_domains: frozenset[str] = frozenset()
    auto_tools: bool = False
    structured_backend: str = "auto"
    compile_sec: float = 10.0
    token_sec: float = 0.5
    memory_bytes: int = 4 * 2**30
    max_form_bytes: int = 2**20

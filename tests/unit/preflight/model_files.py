"""A tiny checkpoint's small files: a byte-level tokenizer that knows one word, and a chat template."""

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

VOCABULARY = 300
TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def words(count: int) -> str:
    """A text of so many tokens, five bytes each."""
    return " word" * count


def chat(text: str = "hi", **fields: Any) -> dict[str, Any]:
    """A chat of one message."""
    return {"messages": [{"role": "user", "content": text}], **fields}


def write_model(
    folder: Path, *, template: str | None = TEMPLATE, begins: bool = False, **config: Any
) -> Path:
    """Write the files.

    Args:
        folder: Where to; made if need be.
        template: The chat template, if any.
        begins: Whether the tokenizer begins each text with a token.
        config: More of `config.json`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("w", "o"), ("wo", "r"), ("wor", "d"), ("\u0120", "word")]
    texts = [*symbols, *("".join(merge) for merge in merges)]
    tokenizer = Tokenizer(models.BPE({text: at for at, text in enumerate(texts)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<s>"), AddedToken("</s>")])
    if begins:
        begin = ("<s>", tokenizer.token_to_id("<s>"))
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[begin])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", **config}))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": "<s>", "eos_token": {"content": "</s>"}})
    )
    (folder / "generation_config.json").write_text(
        json.dumps({"eos_token_id": tokenizer.token_to_id("</s>")})
    )
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return folder

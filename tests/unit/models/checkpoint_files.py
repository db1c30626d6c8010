"""The files of tiny checkpoints, as bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping

Files = Mapping[str, bytes]


def tensors(size: int, fill: bytes = b"\0") -> bytes:
    """A safetensors file with one tensor of this many bytes."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + fill * size


def index(*names: str) -> bytes:
    """An index of weights over these files."""
    return json.dumps(
        {"metadata": {}, "weight_map": {f"w{number}": name for number, name in enumerate(names)}}
    ).encode()


def tiny_checkpoint(fill: bytes = b"\0") -> dict[str, bytes]:
    """A complete checkpoint in two shards, with code, and with what no engine needs."""
    shards = [f"model-{number:05}-of-00002.safetensors" for number in (1, 2)]
    return {
        "config.json": b'{"architectures": ["LlamaForCausalLM"]}',
        "tokenizer.json": b"{}",
        "tokenizer.model": b"\n\x03abc",
        "chat_template.jinja": b"{{ messages }}",
        "merges.txt": b"a b",
        "modeling_tiny.py": b"print('ran')",
        "model.safetensors.index.json": index(*shards),
        **{name: tensors(1000, fill) for name in shards},
        "pytorch_model.bin": b"pickle",
        "optimizer.pt": b"pickle",
        "training_args.bin": b"pickle",
        "original/consolidated.00.pth": b"pickle",
        "README.md": b"# Tiny",
        ".gitattributes": b"",
    }


NEEDED = {
    "config.json",
    "tokenizer.json",
    "tokenizer.model",
    "chat_template.jinja",
    "merges.txt",
    "model.safetensors.index.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
}
"""What an engine needs of `tiny_checkpoint`, code aside."""

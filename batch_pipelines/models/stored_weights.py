"""How a checkpoint's weights are stored: their number type, their quantization, their bytes on disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from batch_pipelines.models.config_fields import CheckpointUnreadable

__all__ = ["bytes_in_folder", "quantization_of", "read_object", "stored_bytes"]

_BYTES: Mapping[str, int] = {"float32": 4, "float16": 2, "half": 2, "bfloat16": 2}

_MOST_BITS: Final = 64
# Block formats carry a scale: one of 8 bits for 32 weights in MXFP4, for 16 in NVFP4.
_BITS: Mapping[str, float] = {
    "fp8": 8, "fbgemm_fp8": 8, "deepseek_v4_fp8": 8, "awq": 4, "gptq": 4, "mxfp4": 4.25, "modelopt_fp4": 4.5,
}  # fmt: skip


def quantization_of(config: Mapping[str, Any]) -> tuple[str | None, float | None]:
    """The method by the engine's name for it, and the bits of a weight where the file or the method tells.

    Args:
        config: The whole configuration; that of a multi-modal model may have it at its language model.
    """
    places = [config, config.get("text_config")]
    found = next(
        (
            value
            for place in places
            if isinstance(place, Mapping)
            for key in ("quantization_config", "compression_config")
            if isinstance(value := place.get(key), Mapping)
        ),
        None,
    )
    if found is None:
        return None, None
    method = str(found.get("quant_method") or "unknown").lower()
    method = method.replace("compressed_tensors", "compressed-tensors")
    bits = found.get("bits") or found.get("w_bit") or _bits(method, found)
    return method, bits if isinstance(bits, int | float) and 0 < bits <= _MOST_BITS else None


def stored_bytes(config: Mapping[str, Any], text: Mapping[str, Any]) -> int:
    """Bytes of a weight that is not quantized, by the number type the configuration names."""
    places = (config, text, config.get("vision_config"))
    names = [
        place.get(key) for place in places if isinstance(place, Mapping) for key in ("dtype", "torch_dtype")
    ]
    # A configuration that names none is read as 32-bit (vLLM's `get_torch_dtype`).
    name = next((name for name in names if isinstance(name, str)), "float32")
    return _BYTES.get(name.removeprefix("torch."), 2)


def bytes_in_folder(folder: Path) -> int | None:
    """Bytes of the weights in a folder; None if it holds none.

    Raises:
        CheckpointUnreadable: The index of the weights is not JSON.
    """
    metadata = (read_object(folder / "model.safetensors.index.json") or {}).get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, Mapping) else None
    if isinstance(total, int | float) and total > 0:
        return int(total)
    # A repository may hold its weights twice, under the names of two formats.
    for pattern in ("model*.safetensors", "*.safetensors", "pytorch_model*.bin"):
        if size := sum(path.stat().st_size for path in folder.glob(pattern) if path.is_file()):
            return size
    return None


def read_object(path: Path) -> Mapping[str, Any] | None:
    """The JSON object in a file; None if there is no such file.

    Raises:
        CheckpointUnreadable: The file cannot be read, or holds something else.
    """
    try:
        value = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, orjson.JSONDecodeError) as error:
        raise CheckpointUnreadable(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointUnreadable(f"{path} is not a JSON object")
    return value


def _bits(method: str, found: Mapping[str, Any]) -> float | None:
    if method == "bitsandbytes":
        return 4 if found.get("load_in_4bit") else 8
    if method == "compressed-tensors":
        groups = found.get("config_groups")
        weights = [
            group.get("weights")
            for group in (groups.values() if isinstance(groups, Mapping) else ())
            if isinstance(group, Mapping)
        ]
        bits = [weight.get("num_bits") for weight in weights if isinstance(weight, Mapping)]
        return max((each for each in bits if isinstance(each, int)), default=None)
    return _BITS.get(method)

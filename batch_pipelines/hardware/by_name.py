"""A model's size by its name: the last resort where no configuration can be read.

A name may say anything, so what comes from here is a guess: it is reported as one, and no request that names
its hardware is refused by it.
"""

import re
from typing import Final

from batch_pipelines.models.checkpoint_facts import COMPUTE_BYTES, CheckpointFacts

__all__ = ["guess_facts", "parameters_in_name"]

_SIZE = re.compile(r"(?<![a-z0-9.])(?:(\d{1,3})x)?(\d{1,4}(?:\.\d{1,3})?)([bm])(?![a-z0-9])")
_SIZE_OF_ACTIVE_PART = re.compile(r"\d+b-\d+e(?![a-z0-9])")  # Llama 4: 17B-16E has 16 experts, 109B in all
_MULTIPLIER = {"b": 1e9, "m": 1e6}

# Published sizes of mixtures of experts. Of others, experts times size is an upper bound: it counts what the
# experts share once for each of them.
_MIXTURES = {(8, 7.0): 46.7e9, (8, 22.0): 140.6e9}

# Layers and width that models up to so many parameters have, as in Llama 3 and Qwen 2.5.
_SHAPES = (
    (1e9, 24, 2048),
    (4e9, 28, 3072),
    (9e9, 32, 4096),
    (16e9, 40, 5120),
    (36e9, 64, 6144),
    (8e10, 80, 8192),
)
_LARGEST_SHAPE = (126, 16_384)
_HEAD_DIM: Final = 128
_KV_HEADS: Final = 8
_VOCAB: Final = 152_064
_CONTEXT: Final = 32_768


def parameters_in_name(name: str) -> int | None:
    """The number of parameters that a name states, such as 7 billion in `Qwen2.5-7B-Instruct`.

    Args:
        name: In any spelling; of several sizes the largest counts.

    Returns:
        None if it states none: a version (`phi-4`) is no size, nor is that of the active experts (`A3B`).
    """
    plain = name.rpartition("/")[2].lower().replace(" ", "-")
    if _SIZE_OF_ACTIVE_PART.search(plain):
        return None
    sizes = []
    for experts, size, unit in _SIZE.findall(plain):
        each = float(size)
        if experts and unit == "b":
            sizes.append(_MIXTURES.get((int(experts), each), int(experts) * each * 1e9))
        else:
            sizes.append(each * _MULTIPLIER[unit])
    return int(max(sizes)) or None if sizes else None


def guess_facts(name: str) -> CheckpointFacts | None:
    """Facts of a model of the size its name states, in 16 bits and a common shape; None if it states none."""
    parameters = parameters_in_name(name)
    if parameters is None:
        return None
    shapes = ((layers, width) for most, layers, width in _SHAPES if parameters <= most)
    layers, width = next(shapes, _LARGEST_SHAPE)
    return CheckpointFacts(
        architectures=(),
        parameters=parameters,
        weight_bytes=parameters * COMPUTE_BYTES,
        layers=layers,
        hidden_size=width,
        attention_heads=width // _HEAD_DIM,
        kv_heads=_KV_HEADS,
        head_dim=_HEAD_DIM,
        dtype_bytes=COMPUTE_BYTES,
        context=_CONTEXT,
        vocab_size=_VOCAB,
        vision=False,
        quantization=None,
    )

"""Load formats with which vLLM 0.32 reads weights straight from an object store; nothing is downloaded then.

What vLLM itself says of them, in its own files:

- `runai_streamer`, `runai_streamer_sharded`: the model is the object prefix. vLLM pulls `*.json`, `*.model`,
  `*.py` and the tokenizer by itself (`config/model.py`), and needs the package `runai-model-streamer`
  (its extra `runai`). The sharded one looks into `s3://` and local folders only
  (`model_loader/sharded_state_loader.py`).
- `tensorizer`: the model must be a local folder, for with a prefix vLLM accepts only the two above
  (`config/vllm.py`); the weights are named by `tensorizer_uri`, `s3://` or `https://`, and with tensor
  parallelism it must have a pattern for the rank (`model_loader/tensorizer.py`). It needs the package
  `tensorizer` (its extra of that name).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from batch_pipelines.models.errors import CheckpointRefused

if TYPE_CHECKING:
    from batch_pipelines.models.source import ModelSource

__all__ = ["STREAMED", "is_streamed", "tensorizer_uri"]

STREAMED: Final[Mapping[str, Sequence[str]]] = {
    "runai_streamer": ("s3://", "gs://", "az://"),
    "runai_streamer_sharded": ("s3://",),
    "tensorizer": ("s3://",),
}
"""By load format, the stores it reads from."""

_RANK = re.compile(r"(?<=rank-)(\d{2,})(?=\.tensors\Z)")


def is_streamed(source: ModelSource, load_format: str | None) -> bool:
    """Whether the engine reads the weights from the store by itself.

    Raises:
        CheckpointRefused: The load format cannot read from there.
    """
    stores = STREAMED.get(load_format or "")
    if stores is None or source.kind == "folder":
        return False
    if source.kind == "hub":
        if load_format == "tensorizer":
            raise CheckpointRefused(f"load_format 'tensorizer' reads a folder or s3://, not {source}")
        return False
    if not source.uri.startswith(tuple(stores)):
        raise CheckpointRefused(
            f"load_format {load_format!r} streams from {' or '.join(stores)} only, not from {source.uri}: "
            "leave it out, and the weights are downloaded first"
        )
    return True


def tensorizer_uri(prefix: str, weights: Sequence[str]) -> str:
    """Where tensorizer finds its weights: one file, or a pattern for the files of the ranks.

    Args:
        prefix: The checkpoint's address.
        weights: Names of its `*.tensors`.

    Raises:
        CheckpointRefused: They are neither `model.tensors` nor one file a rank, `model-rank-000.tensors` on.
    """
    ranks = sorted(name for name in weights if _RANK.search(name))
    pattern = _RANK.sub(lambda rank: f"%0{len(rank[1])}d", ranks[0]) if ranks else ""
    if ranks and ranks == [pattern % rank for rank in range(len(ranks))]:
        return f"{prefix}/{pattern}"
    if list(weights) == ["model.tensors"]:
        return f"{prefix}/model.tensors"
    raise CheckpointRefused(
        f"{prefix} holds {', '.join(weights)}; load_format 'tensorizer' needs model.tensors, or "
        "model-rank-000.tensors and so on, one for each rank"
    )

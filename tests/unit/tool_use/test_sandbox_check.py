"""There is a sandbox only where it has been seen to hold; else there is a reason."""

import asyncio
import dataclasses
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from batch_pipelines.api.request import ToolConfig
from batch_pipelines.tool_use.policy import tool_error
from batch_pipelines.tool_use.sandbox import Sandbox, SandboxFailed
from batch_pipelines.tool_use.sandbox_check import SandboxUnavailable, open_sandbox, sandbox_available
from batch_pipelines.tool_use.syscall_filter import syscall_filter

OPEN_DOOR = '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n'
OUT_OF_ORDER = '#!/bin/sh\necho "bwrap: No permissions to create new namespace" >&2\nexit 1\n'


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user can read; pytest's own are its user's alone."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def put_in_path(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "bwrap"
    program.write_text(script)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_sandbox_that_has_been_tried_is_available(sandbox: Sandbox) -> None:
    del sandbox  # which skips the test where there is none
    assert sandbox_available() is None


def test_without_bubblewrap_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = sandbox_available()
    assert reason is not None
    assert "bubblewrap is not installed" in reason
    with pytest.raises(SandboxUnavailable, match="bwrap in PATH"):
        open_sandbox()


def test_without_a_way_to_watch_memory_there_is_none(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    del sandbox  # which skips the test where there is none
    monkeypatch.setattr("batch_pipelines.tool_use.sandbox_check.lists_children", lambda: False)
    reason = sandbox_available()
    assert reason is not None
    assert "memory cannot be watched" in reason


def test_where_bubblewrap_cannot_do_its_work_its_reason_is_given(
    monkeypatch: pytest.MonkeyPatch, shared: Path
) -> None:
    put_in_path(shared, OUT_OF_ORDER, monkeypatch)
    reason = sandbox_available()
    assert reason is not None
    assert "No permissions to create new namespace" in reason


def test_program_that_keeps_nothing_apart_is_found_out(monkeypatch: pytest.MonkeyPatch, shared: Path) -> None:
    put_in_path(shared, OPEN_DOOR, monkeypatch)
    reason = sandbox_available()
    assert reason is not None
    assert "the sandbox does not hold" in reason
    for fact in (
        "reaches this machine's own network",
        "sees other processes",
        "sees this process's files",
        "can get more rights",
        "can make system calls that are refused",
    ):
        assert fact in reason


def test_sandbox_that_breaks_later_runs_nothing(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, shared: Path
) -> None:
    monkeypatch.setattr("batch_pipelines.tool_use.sandbox._PAUSES_SEC", (0.0,))
    broken = shared / "bwrap"
    broken.write_text(OUT_OF_ORDER)
    broken.chmod(0o755)
    later = Sandbox(dataclasses.replace(sandbox.bubblewrap, program=str(broken)))
    with pytest.raises(SandboxFailed, match="No permissions to create new namespace"):
        asyncio.run(later.run("print(1)", timeout_sec=5))


def test_named_python_brings_its_packages(sandbox: Sandbox, shared: Path) -> None:
    python = sandbox.bubblewrap.interpreter.executable
    subprocess.run([python, "-m", "venv", "--without-pip", str(shared / "env")], check=True)
    packages = next((shared / "env" / "lib").glob("python*/site-packages"))
    (packages / "greeting.py").write_text("words = 'hello'\n")
    named = open_sandbox(shared / "env" / "bin" / "python")
    assert asyncio.run(named.run("import greeting\ngreeting.words", timeout_sec=20)).stdout == "'hello'\n"
    outside = asyncio.run(sandbox.run("import greeting", timeout_sec=20))
    assert "No module named 'greeting'" in outside.stdout


def test_python_that_cannot_be_started_is_named(sandbox: Sandbox, tmp_path: Path) -> None:
    del sandbox  # which skips the test where there is none
    with pytest.raises(SandboxUnavailable, match="nowhere/python cannot be started"):
        open_sandbox(tmp_path / "nowhere/python")


def test_processor_without_a_filter_is_named() -> None:
    assert len(syscall_filter("x86_64")) == len(syscall_filter("aarch64")) > 0
    with pytest.raises(ValueError, match="riscv64"):
        syscall_filter("riscv64")


def test_request_for_another_tool_is_refused() -> None:
    error = tool_error(ToolConfig(name="web_search"), allowed=True)
    assert error is not None
    assert error.pointer == "/tool_config/name"
    assert "code_evaluator" in error.message


def test_deployment_that_does_not_allow_the_tool_refuses_it() -> None:
    error = tool_error(ToolConfig(name="code_evaluator"), allowed=False)
    assert error is not None
    assert "BATCH_PIPELINES_ALLOW_CODE_EVALUATOR" in error.message


def test_machine_without_a_sandbox_refuses_the_tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    error = tool_error(ToolConfig(name="code_evaluator"), allowed=True)
    assert error is not None
    assert "bubblewrap is not installed" in error.message


def test_allowed_tool_on_a_machine_with_a_sandbox_is_fine(sandbox: Sandbox) -> None:
    del sandbox  # which skips the test where there is none
    assert tool_error(ToolConfig(name="code_evaluator"), allowed=True) is None

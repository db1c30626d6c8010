"""Running the code of one call, again where a name was missing, and telling a model what came of it."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

from batch_pipelines.tool_use.code_blocks import shorten
from batch_pipelines.tool_use.common_imports import COMMON_IMPORTS
from batch_pipelines.tool_use.sandbox import CodeResult

__all__ = ["RunCode", "ToolRun", "run_call"]

_MOST_RETRIES: Final = 3
_OUTPUT_CHARS: Final = 8000
"""Longest output put into a text, which may be some 3,000 tokens of the model's context."""
_MISSING: Final = re.compile(r"^NameError: name '(\w+)' is not defined", re.M)


class RunCode(Protocol):
    """Runs a piece of code apart from everything else; `Sandbox.run` does."""

    async def __call__(self, code: str, *, timeout_sec: float, before: Sequence[str] = ()) -> CodeResult:
        """See `Sandbox.run`."""
        ...


@dataclass(frozen=True, slots=True)
class ToolRun:
    """One call of the tool, as an answer's trace tells it.

    Attributes:
        code: What the model wrote.
        output: What was put into the text for it.
        exit_code: The program's exit code, 128 + N after signal N; None if it was stopped.
        seconds: How long its last run took.
        timed_out: Whether it was stopped for its time.
        truncated: Whether it was stopped because it printed too much, or its output was shortened.
        retried: How often it was run again for a missing name.
    """

    code: str
    output: str
    exit_code: int | None
    seconds: float
    timed_out: bool
    truncated: bool
    retried: int

    def traced(self, iteration: int) -> dict[str, Any]:
        """The entry of an answer's trace; iterations count from 1."""
        return {"iteration": iteration, **asdict(self)}


async def run_call(
    code: str, earlier: Sequence[str], run: RunCode, *, timeout_sec: int, retry: bool
) -> ToolRun:
    """Run a call's code, and again with what it may have taken for granted where a name is missing.

    Args:
        code: What the model wrote.
        earlier: Code of earlier calls of this answer that ran well, oldest first.
        run: Runs code.
        timeout_sec: Longest run, in seconds.
        retry: Whether to run it again: first after the earlier code, then after imports from a fixed table.

    Raises:
        SandboxFailed: The code could not be run at all.
    """
    result = await run(code, timeout_sec=timeout_sec)
    before: list[str] = []
    retried = 0
    while retry and retried < _MOST_RETRIES:
        name = _missing_name(result)
        if name is None:
            break
        if retried == 0 and earlier:
            before = [*earlier]
        elif (statement := COMMON_IMPORTS.get(name)) is not None and statement not in before:
            before = [statement, *before]
        else:
            break
        result = await run(code, timeout_sec=timeout_sec, before=before)
        retried += 1
    said = _told(result, timeout_sec)
    output = shorten(said, _OUTPUT_CHARS)
    return ToolRun(
        code=code,
        output=output,
        exit_code=result.exit_code,
        seconds=result.seconds,
        timed_out=result.timed_out,
        truncated=result.truncated or output != said,
        retried=retried,
    )


def _missing_name(result: CodeResult) -> str | None:
    if result.exit_code != 1:
        return None
    found = _MISSING.findall(result.stdout)
    return found[-1] if found else None


def _told(result: CodeResult, timeout_sec: int) -> str:
    """The output, and why the code did not end by itself, if it did not."""
    if result.timed_out:
        reason = f"ran longer than {timeout_sec} seconds and was stopped"
    elif result.truncated:
        reason = "printed too much and was stopped"
    elif result.out_of_memory:
        reason = "used too much memory and was stopped"
    elif result.exit_code is not None and result.exit_code > 128:
        reason = f"crashed (signal {result.exit_code - 128})"
    else:
        return result.stdout
    start = f"{result.stdout}\n" if result.stdout and not result.stdout.endswith("\n") else result.stdout
    return f"{start}Error: the code {reason}\n"

"""Code is run again where a name was missing, and what came of it is told in words a model can use."""

import asyncio
from collections.abc import Sequence

import pytest

from batch_pipelines.tool_use.execution import ToolRun, run_call
from batch_pipelines.tool_use.sandbox import CodeResult, Sandbox


class Runs:
    """Gives results in turn, and remembers what it was asked to run."""

    def __init__(self, *results: CodeResult) -> None:
        self.results = list(results)
        self.before: list[list[str]] = []

    async def __call__(self, code: str, *, timeout_sec: float, before: Sequence[str] = ()) -> CodeResult:
        assert code == "CODE"
        assert timeout_sec == 7
        self.before.append(list(before))
        return self.results.pop(0)


def call(runs: Runs, *earlier: str, retry: bool = True) -> ToolRun:
    done = asyncio.run(run_call("CODE", earlier, runs, timeout_sec=7, retry=retry))
    assert runs.results == []
    return done


def good(stdout: str = "1\n") -> CodeResult:
    return CodeResult(stdout, 0, 0.5)


def lacks(name: str) -> CodeResult:
    traceback = (
        f"Traceback (most recent call last):\nNameError: name '{name}' is not defined. Did you mean?\n"
    )
    return CodeResult(traceback, 1, 0.5)


def test_code_that_runs_is_run_once() -> None:
    runs = Runs(good())
    assert call(runs, "x = 1") == ToolRun("CODE", "1\n", 0, 0.5, timed_out=False, truncated=False, retried=0)
    assert runs.before == [[]]


def test_missing_name_is_first_looked_for_in_earlier_code() -> None:
    runs = Runs(lacks("x"), good())
    assert call(runs, "x = 1", "y = 2").retried == 1
    assert runs.before == [[], ["x = 1", "y = 2"]]


def test_then_it_is_imported_if_it_is_a_common_one() -> None:
    runs = Runs(lacks("x"), lacks("np"), lacks("Counter"), good())
    assert call(runs, "x = np.pi").retried == 3
    assert runs.before == [
        [],
        ["x = np.pi"],
        ["import numpy as np", "x = np.pi"],
        ["from collections import Counter", "import numpy as np", "x = np.pi"],
    ]


def test_without_earlier_code_it_is_imported_at_once() -> None:
    runs = Runs(lacks("math"), good())
    assert call(runs).retried == 1
    assert runs.before == [[], ["import math"]]


def test_there_are_three_retries_at_most() -> None:
    runs = Runs(lacks("math"), lacks("re"), lacks("json"), lacks("sys"))
    done = call(runs)
    assert (done.retried, done.exit_code) == (3, 1)
    assert "name 'sys' is not defined" in done.output


def test_name_that_nothing_provides_is_not_retried_in_vain() -> None:
    assert call(Runs(lacks("wibble"))).retried == 0
    assert call(Runs(lacks("math"), lacks("math"))).retried == 1


def test_other_errors_are_not_retried() -> None:
    error = CodeResult("Traceback (most recent call last):\nZeroDivisionError: division by zero\n", 1, 0.1)
    done = call(Runs(error), "x = 1")
    assert (done.retried, done.output) == (0, error.stdout)


def test_name_error_that_a_program_prints_is_none() -> None:
    assert call(Runs(CodeResult(lacks("math").stdout, 0, 0.1))).retried == 0


def test_nothing_is_retried_when_told_not_to() -> None:
    assert call(Runs(lacks("math")), "x = 1", retry=False).retried == 0


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (
            CodeResult("a\n", None, 7.0, timed_out=True),
            "a\nError: the code ran longer than 7 seconds and was",
        ),
        (CodeResult("a", None, 1.0, truncated=True), "a\nError: the code printed too much and was"),
        (CodeResult("", None, 1.0, out_of_memory=True), "Error: the code used too much memory and was"),
    ],
)
def test_code_that_did_not_end_by_itself_is_told_so(result: CodeResult, told: str) -> None:
    assert call(Runs(result)).output == f"{told} stopped\n"


def test_crash_is_told_with_its_signal() -> None:
    assert call(Runs(CodeResult("", 139, 1.0))).output == "Error: the code crashed (signal 11)\n"


def test_long_output_is_shortened_and_marked() -> None:
    done = call(Runs(good("a" * 30_000 + "\nTypeError: the end\n")))
    assert done.truncated
    assert len(done.output) < 8100
    assert "characters left out" in done.output
    assert done.output.endswith("TypeError: the end\n")


def test_retries_work_in_the_sandbox_and_earlier_code_does_not_print_again(sandbox: Sandbox) -> None:
    async def scenario() -> ToolRun:
        earlier = ["x = 20\nprint('noise')\nimport os\nos.write(1, b'noise')", "y = 1\nexit()"]
        return await run_call(
            "print(math.floor(x + y + 0.5))", earlier, sandbox.run, timeout_sec=20, retry=True
        )

    done = asyncio.run(scenario())
    assert (done.output, done.exit_code, done.retried) == ("21\n", 0, 2)

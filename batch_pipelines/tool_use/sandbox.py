"""Running a piece of Python in a sandbox of its own, for a bounded time, with bounded output.

What the sandbox is made of is in `bubblewrap`; whether it can be had on a machine, in `sandbox_check`; what
the code's output means to a text, in `execution`. There is no way here to run code outside it.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from batch_pipelines.tool_use.bubblewrap import READY, Bubblewrap
from batch_pipelines.tool_use.process_memory import children_of, resident_bytes

__all__ = ["CodeResult", "Sandbox", "SandboxFailed"]

_START_SEC: Final = 30.0
_PAUSES_SEC: Final = (1.0, 2.0)
_MEMORY_LOOK_SEC: Final = 0.1
_MOST_AT_ONCE: Final = 16  # each may use `SandboxLimits.memory_bytes`
_CHUNK: Final = 64 * 1024
_REASON_BYTES: Final = 2000


class SandboxFailed(Exception):
    """The sandbox did not start, which says nothing about the code; the message has bubblewrap's reason."""


@dataclass(frozen=True, slots=True)
class CodeResult:
    """What came of a piece of code.

    Attributes:
        stdout: What it printed, standard error included, in the order it came; at most
            `SandboxLimits.output_bytes` of it.
        exit_code: The program's exit code, 128 + N after signal N; None if it was stopped.
        seconds: How long it ran.
        timed_out: Whether it was stopped for its time.
        truncated: Whether it was stopped because it printed too much.
        out_of_memory: Whether it was stopped because its processes together used too much memory.
    """

    stdout: str
    exit_code: int | None
    seconds: float
    timed_out: bool = False
    truncated: bool = False
    out_of_memory: bool = False


class Sandbox:
    """Runs pieces of Python, each in a new sandbox, as many at once as there are processors, up to 16.

    Attributes:
        bubblewrap: What each sandbox is made of.
    """

    def __init__(self, bubblewrap: Bubblewrap) -> None:
        """Set it up; `sandbox_check.open_sandbox` makes one that has been tried."""
        self.bubblewrap = bubblewrap
        self._slots = asyncio.Semaphore(min(len(os.sched_getaffinity(0)), _MOST_AT_ONCE))

    async def run(self, code: str, *, timeout_sec: float, before: Sequence[str] = ()) -> CodeResult:
        """Run a piece of code and return what came of it; cancelling ends every process of it.

        Like at a prompt, the value of a last line that is an expression is printed.

        Args:
            code: The source, of any kind: it is only parsed inside.
            timeout_sec: Longest it may run, in seconds; waiting for its turn does not count.
            before: Pieces that run before it, under the same names, without what they print.

        Raises:
            SandboxFailed: Bubblewrap did not start the program, several times in a row.
        """
        async with self._slots:
            for pause in _PAUSES_SEC:
                try:
                    return await self._run_once(code, timeout_sec, before)
                except SandboxFailed:
                    await asyncio.sleep(pause)  # out of processes or memory, which may pass
            return await self._run_once(code, timeout_sec, before)

    async def _run_once(self, code: str, timeout_sec: float, before: Sequence[str]) -> CodeResult:
        with self.bubblewrap.launch(code, timeout_sec=timeout_sec, before=before) as (command, arguments):
            process = await _start(command, arguments)
        try:
            await _wait_until_ready(process)
            return await self._watch(process, timeout_sec)
        finally:
            await _end(process)

    async def _watch(self, process: asyncio.subprocess.Process, timeout_sec: float) -> CodeResult:
        started = time.monotonic()
        output = bytearray()
        reading = asyncio.create_task(_read(process, output, self.bubblewrap.limits.output_bytes))
        filling = asyncio.create_task(_until_memory_exceeds(process.pid, self.bubblewrap.limits.memory_bytes))
        try:
            done, _ = await asyncio.wait(
                (reading, filling), timeout=timeout_sec, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            reading.cancel()
            filling.cancel()
            await asyncio.gather(reading, filling, return_exceptions=True)
        seconds = round(time.monotonic() - started, 3)
        exit_code = reading.result() if reading in done else None
        truncated = len(output) > self.bubblewrap.limits.output_bytes
        return CodeResult(
            stdout=output[: self.bubblewrap.limits.output_bytes].decode("utf-8", "replace"),
            exit_code=exit_code,
            seconds=seconds,
            timed_out=not done and not truncated,
            truncated=truncated,
            out_of_memory=filling in done and exit_code is None and not truncated,
        )


async def _start(command: Sequence[str], arguments: Mapping[str, Any]) -> asyncio.subprocess.Process:
    starting = asyncio.create_task(
        asyncio.create_subprocess_exec(
            *command,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # an interrupt at the terminal is no result of the code's
            **arguments,
        )
    )
    try:
        return await asyncio.shield(starting)  # cancelled half-way it would end as `_end` must not
    except OSError as error:
        raise SandboxFailed(f"bubblewrap cannot be started: {error}") from error
    except asyncio.CancelledError:
        with contextlib.suppress(OSError):
            await _end(await starting)
        raise


async def _wait_until_ready(process: asyncio.subprocess.Process) -> None:
    """Raise `SandboxFailed` unless the program says that it has come to the code."""
    stream = _stdout(process)
    try:
        async with asyncio.timeout(_START_SEC):
            first = await stream.readexactly(len(READY))
            if first == READY:
                return
            words = first + await stream.read(_REASON_BYTES)
    except asyncio.IncompleteReadError as error:
        words = error.partial
    except TimeoutError:
        raise SandboxFailed(f"the sandbox did not start within {_START_SEC:.0f} seconds") from None
    raise SandboxFailed(f"the sandbox did not start: {words.decode('utf-8', 'replace').strip()}")


async def _read(process: asyncio.subprocess.Process, output: bytearray, limit: int) -> int | None:
    """Collect what a program prints until it ends; returns its exit code, or None if it printed too much."""
    stream = _stdout(process)
    while data := await stream.read(_CHUNK):
        output += data
        if len(output) > limit:
            return None
    return await process.wait()


async def _until_memory_exceeds(pid: int, limit: int) -> None:
    while resident_bytes(pid) <= limit:
        await asyncio.sleep(_MEMORY_LOOK_SEC)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the sandbox; when this returns no process of it is left."""
    # The code's first process takes all others with it, and bubblewrap collects it and ends. Killed itself,
    # bubblewrap would leave it to the machine's init.
    inside = children_of(process.pid)
    with contextlib.suppress(ProcessLookupError):
        for pid in inside:
            os.kill(pid, signal.SIGKILL)
        if not inside:
            process.kill()
    stream = _stdout(process)
    while await stream.read(_CHUNK):
        continue
    await process.wait()


def _stdout(process: asyncio.subprocess.Process) -> asyncio.StreamReader:
    if process.stdout is None:
        raise ValueError("the process was started without a pipe")
    return process.stdout

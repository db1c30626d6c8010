"""vLLM's own API server as an `Engine`: a child process that answers on a Unix socket in a private folder.

A socket in a folder only this user can enter leaves no port to race for and nothing that listens on the
network. Translating settings, the processes and their environment have modules of their own.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import re
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import aiohttp

from batch_pipelines.engines.environment import engine_environment
from batch_pipelines.engines.gang import Start
from batch_pipelines.engines.private_folder import private_folder
from batch_pipelines.engines.process import EngineProcess
from batch_pipelines.engines.protocol import (
    EngineDied,
    EngineReply,
    EngineRequest,
    EngineSpec,
    EngineStartError,
)
from batch_pipelines.engines.vllm_args import default_in_flight, engine_args
from batch_pipelines.engines.vllm_nodes import node_arguments, node_environment

# `-P` keeps the working directory off the import path: a folder called `tokenizers` there breaks vLLM's
# imports.
VLLM_COMMAND = (sys.executable, "-P", "-m", "vllm.entrypoints.launchers.api_server.entry")

_JSON = {"Content-Type": "application/json"}
_HEALTH_EVERY_SEC = 0.2
_HEALTH_TIMEOUT_SEC = 10.0
_LOG_LINES = 40
_CONNECT_TRIES = 20

_ERROR_LINE = re.compile(
    r"^(?:\([^)]*\) *)?(?:ERROR .*?\] *)?(?P<text>(?:[\w.]+(?:Error|Exception|Killed|Exit)|.*?: error): .+)$"
)
_PREFIX = re.compile(r"^\([^)]*\) ?")
_REASON_FOLLOWS = re.compile(r"validation errors? for \w+$")  # pydantic's reasons come on lines of their own
_POINTS_ELSEWHERE = (
    "See root cause above",
    "Engine core initialization failed",
    "WorkerProc initialization failed",
)


class VLLMServer:
    """Runs one vLLM server for one job.

    Used from one event loop, which may run in any thread.

    Attributes:
        spec: What it serves and how.
    """

    def __init__(
        self,
        spec: EngineSpec,
        *,
        command: Sequence[str] = VLLM_COMMAND,
        start_timeout_sec: float = 1800.0,
        grace_sec: float = 10.0,
    ) -> None:
        """Take the description; `start()` starts the server.

        Args:
            spec: What to serve and how.
            command: Program that starts the server; the arguments are appended to it.
            start_timeout_sec: How long loading the model may take. A server that exits is noticed at once.
            grace_sec: Seconds the server has to end by itself before it is killed.
        """
        self.spec = spec
        self._command = tuple(command)
        self._start_timeout_sec = start_timeout_sec
        self._grace_sec = grace_sec
        self._max_in_flight = default_in_flight(spec.model_config, spec.defaults)
        self._lock = asyncio.Lock()
        self._run: _Run | None = None
        self._nodes: Start | None = None

    @property
    def max_in_flight(self) -> int:
        """Twice the number of sequences the server works on at once."""
        return self._max_in_flight

    @property
    def pid(self) -> int | None:
        """Process group of the running server, None when there is none."""
        return self._run.process.pid if self._run is not None else None

    def lead(self, start: Start) -> None:
        """Be the first of several nodes when it is started next; the others are the caller's to start."""
        self._nodes = start

    async def start(self) -> None:
        """Start the server and wait until it answers.

        Raises:
            EngineStartError: It exited, could not be started, or did not answer in time.
        """
        async with self._lock:
            if self._run is not None and self._run.usable:
                return
            await self._end_run()
            self._run = self._launch()
            try:
                await self._wait_until_healthy(self._run)
            except BaseException:
                await self._end_run()
                raise

    async def send(self, request: EngineRequest) -> EngineReply:
        """Post one request; see `Engine.send`."""
        run = self._run
        if run is None or not run.usable:
            raise EngineDied("the engine is not running")
        reply = await self._post(run, request)
        # With its core gone the server answers every request with a 500 until it exits. Those are no answers.
        if reply.status >= 500 and await run.health() != 200:
            raise run.died(f"it answered {reply.status} and is not healthy")
        return reply

    async def stop(self) -> None:
        """End the server and everything it started, within the grace and a few seconds."""
        async with self._lock:
            await self._end_run()

    async def _post(self, run: _Run, request: EngineRequest) -> EngineReply:
        unsent = resets = 0
        while True:
            try:
                async with run.session.post(
                    run.url(request.path), data=request.body, headers=_JSON
                ) as response:
                    return EngineReply(response.status, await response.read())
            except (aiohttp.ClientError, OSError) as error:
                why = f"{error or type(error).__name__}"
                if _nobody_listens(error) or not run.usable:
                    raise run.died(why) from error
                if _never_sent(error):
                    # A burst can overflow the socket's queue; a Unix socket then fails instead of waiting.
                    unsent += 1
                    await asyncio.sleep(random.uniform(0, 0.05) * unsent)  # noqa: S311 - spreads the next try
                else:
                    resets += 1
                if unsent > _CONNECT_TRIES or resets > 1:
                    raise run.died(why) from error

    def _launch(self) -> _Run:
        directory = private_folder()
        try:
            translated = engine_args(self.spec.model_config, self.spec.defaults, self.spec.needs)
            for warning in translated.warnings:
                self.spec.log(warning)
            nodes = self._nodes
            environment = engine_environment(
                os.environ,
                {
                    "VLLM_RPC_BASE_PATH": str(directory),
                    **self.spec.environment,
                    **(node_environment(nodes.address) if nodes else {}),
                },
            )
            arguments = [
                f"--uds={directory / 'api'}",
                f"--model={self.spec.model}",
                f"--served-model-name={self.spec.served_model_name}",
                "--disable-uvicorn-access-log",  # else a line in the log for each item
                *translated.args,
                *(node_arguments(nodes, 0) if nodes else ()),
            ]
            process = EngineProcess(
                [*self._command, *arguments],
                environment=environment,
                directory=directory,
                log=self.spec.log,
                grace_sec=self._grace_sec,
            )
        except (OSError, ValueError) as error:
            shutil.rmtree(directory, ignore_errors=True)
            raise EngineStartError(f"the engine cannot be started: {error}") from error
        return _Run(process, directory)

    async def _wait_until_healthy(self, run: _Run) -> None:
        started = time.monotonic()
        while not run.process.ended:
            if await run.health() == 200:
                return
            if time.monotonic() - started > self._start_timeout_sec:
                what = f"the engine did not answer within {self._start_timeout_sec:g} s"
                raise EngineStartError(describe_failure(what, run.process.tail))
            await asyncio.sleep(_HEALTH_EVERY_SEC)
        waited = time.monotonic() - started
        what = f"the engine exited with code {run.process.exit_code} after {waited:.0f} s, before it answered"
        raise EngineStartError(describe_failure(what, run.process.tail))

    async def _end_run(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            # Shielded: an end once begun is carried through, also when the one who waits for it is cancelled.
            await asyncio.shield(asyncio.ensure_future(run.end()))


class _Run:
    """One start of the server: its processes, its folder, and the connections to it."""

    def __init__(self, process: EngineProcess, directory: Path) -> None:
        self.process = process
        self.session = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(str(directory / "api"), limit=0, keepalive_timeout=300.0),
            timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None),
        )
        self._directory = directory
        self._dead = False

    @property
    def usable(self) -> bool:
        """Whether requests may be sent: it has not ended, and none found it dead or dying."""
        return not self._dead and not self.process.ended

    def url(self, path: str) -> str:
        return "http://engine" + path

    def died(self, how: str) -> EngineDied:
        self._dead = True
        return EngineDied(f"the engine died: {how}")

    async def health(self) -> int | None:
        """Return the status of the server's own health check, None when it does not answer."""
        timeout = aiohttp.ClientTimeout(total=_HEALTH_TIMEOUT_SEC)
        try:
            async with self.session.get(self.url("/health"), timeout=timeout) as response:
                return response.status
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None

    async def end(self) -> None:
        self._dead = True
        try:
            await self.session.close()  # fails at once what is in flight
            await asyncio.get_running_loop().run_in_executor(None, self.process.stop)
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)


def describe_failure(what: str, log: Sequence[str]) -> str:
    """Return a message for a failed start: what happened, the log line that says most, and the last lines."""
    errors = [(n, match["text"]) for n, line in enumerate(log) if (match := _ERROR_LINE.match(line))]
    causes = [error for error in errors if not any(mark in error[1] for mark in _POINTS_ELSEWHERE)]
    at, cause = (causes or errors or [(0, "")])[-1]
    if _REASON_FOLLOWS.search(cause):
        details = [_PREFIX.sub("", line) for line in list(log)[at + 1 : at + 3]]
        cause = " ".join([cause, *(line.strip() for line in details if line.startswith(" "))])
    message = f"{what}: {cause}" if cause else what
    last = list(log)[-_LOG_LINES:]
    if not last:
        return f"{message}\nIt printed nothing."
    return "\n".join([message, f"The last {len(last)} lines of its log:", *last])


def _nobody_listens(error: BaseException) -> bool:
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    return isinstance(cause, ConnectionRefusedError | FileNotFoundError)


def _never_sent(error: BaseException) -> bool:
    # asyncio takes a Unix socket's full queue for a connection made; the first write then finds it closed.
    # Python 3.12 says of that socket that it is not connected, where 3.11 says that it was reset.
    return (
        isinstance(error, aiohttp.ClientConnectorError)
        or isinstance(error.__cause__, aiohttp.ClientConnectionResetError)
        or (isinstance(error, OSError) and error.errno == errno.ENOTCONN)
    )

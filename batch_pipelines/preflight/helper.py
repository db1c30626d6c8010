"""The helper process as its caller sees it: a request in, an answer out, or the reason there is none.

One process serves a whole job. It is started with the first request, and anew after one that it did not
survive. What it does is in `child`.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any, Final, Self

import orjson

__all__ = ["Helper", "HelperExhausted", "HelperLost", "HelperUnusable"]

_COMMAND: Final = (sys.executable, "-P", "-m", "batch_pipelines.preflight.child")
_LOAD_SEC: Final = 300.0
"""For importing torch from a slow disk, as xgrammar does."""
_INHERITED: Final = frozenset(
    {
        "PATH", "HOME", "LANG", "TZ", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME",
        "PYTHONPYCACHEPREFIX", "LD_LIBRARY_PATH", "LD_PRELOAD",
    }
)  # fmt: skip
_SET: Final = {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_OFFLINE": "1",
}
_CHUNK: Final = 2**16
_MOST_LOSSES: Final = 60
"""Each costs up to its time limit, so that they bound what a hostile input costs: ten minutes at 10 s."""


class HelperLost(Exception):
    """The helper did not survive a request, or is not worth waiting for any longer; the message says how."""


class HelperExhausted(HelperLost):
    """Too many requests of this job did not go well, so no more are tried."""


class HelperUnusable(Exception):
    """The helper cannot load what a request needs, which is no fault of the request; the message says why."""


class Helper:
    """Starts the helper when it is first needed, and anew when it was lost. For one thread."""

    def __init__(self, *, memory_bytes: int, command: Sequence[str] = _COMMAND) -> None:
        """Take the limits.

        Args:
            memory_bytes: What a request may take beyond the memory the helper has anyway.
            command: The program; another one for tests.
        """
        self._memory_bytes = memory_bytes
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._loaded: dict[str, dict[str, Any]] = {}
        self._unusable: dict[str, str] = {}
        self._losses = 0

    def ask(
        self, op: str, request: Mapping[str, Any], *, seconds: float, loads: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Have the helper do something.

        Args:
            op: What to do.
            request: The rest of the request.
            seconds: How long it may take.
            loads: What must have been loaded before, by op and in order, with the rest of its request.

        Raises:
            HelperExhausted: The job's share of requests that do not go well is used up.
            HelperLost: There is no answer, and a new helper will serve the next request.
            HelperUnusable: It did not survive loading something, now or earlier.
        """
        if self._losses >= _MOST_LOSSES:
            raise HelperExhausted(
                f"is not tried, after {self._losses} others of this job that did not go well"
            )
        for name, rest in loads.items():
            self.load(name, rest)
        try:
            return self._exchange({**request, "op": op, "seconds": seconds, "memory": self._memory_bytes})
        except HelperLost:
            self._losses += 1
            raise

    def load(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Have the helper load something, unless it has; the answer is the same each time.

        Raises:
            HelperUnusable: It did not survive that, now or earlier; it is not tried again.
        """
        if name in self._unusable:
            raise HelperUnusable(self._unusable[name])
        if self._process is None or name not in self._loaded:
            try:
                self._loaded[name] = self._exchange({**request, "op": name, "seconds": _LOAD_SEC})
            except HelperLost as loss:
                self._unusable[name] = f"{name} {loss}"
                raise HelperUnusable(self._unusable[name]) from loss
        return self._loaded[name]

    def close(self) -> None:
        """End the helper; a request after that starts another."""
        process, self._process = self._process, None
        self._loaded = {}
        if process is not None:
            process.kill()
            process.communicate()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """End the helper."""
        self.close()

    def _exchange(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self._process is None:
            self._process = self._start()
        stdin, stdout = _pipes(self._process)
        try:
            stdin.write(orjson.dumps(request, option=orjson.OPT_APPEND_NEWLINE))
            stdin.flush()
        except BrokenPipeError:
            raise self._lost() from None
        line = self._read_line(stdout, request["seconds"])
        answer: dict[str, Any] = orjson.loads(line)
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        allowed = {name: value for name, value in os.environ.items() if name in _INHERITED}
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**allowed, **_SET},
            start_new_session=True,
        )

    def _read_line(self, stdout: IO[bytes], seconds: float) -> bytes:
        deadline = time.monotonic() + seconds
        pieces: list[bytes] = []
        ready = select.poll()
        ready.register(stdout, select.POLLIN)
        while not (pieces and pieces[-1].endswith(b"\n")):
            left = deadline - time.monotonic()
            if left <= 0 or not ready.poll(left * 1000):
                self.close()
                raise HelperLost(f"took more than {seconds:g} s")
            piece = os.read(stdout.fileno(), _CHUNK)
            if not piece:
                raise self._lost()
            pieces.append(piece)
        return b"".join(pieces)

    def _lost(self) -> HelperLost:
        process = self._process
        code = process.wait() if process is not None else None
        self.close()
        gib = self._memory_bytes / 2**30
        return HelperLost(f"ended the process that tried it ({_how(code)}; it may take {gib:g} GiB)")


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    if process.stdin is None or process.stdout is None:
        raise ValueError("the process was started without pipes")
    return process.stdin, process.stdout


def _how(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    return signal.Signals(-code).name

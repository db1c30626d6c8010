"""The command that runs a piece of Python behind bubblewrap's walls, and what it may use there.

What the code sees: the system's libraries and one Python, read-only, a folder of its own in memory, and a
handful of devices. Running the command is `sandbox`'s matter.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from batch_pipelines.tool_use.interpreter import Interpreter

__all__ = ["NOBODY", "READY", "Bubblewrap", "SandboxLimits", "sandbox_identity"]

NOBODY: Final = 65534
"""The user and group that code runs as, within the sandbox and, where this process is root's, outside too."""
READY: Final = b"ready\n"
"""What a command prints first, when all is set up and the code is about to run."""

_RUNNER: Final = Path(__file__).with_name("runner.py").read_text()
_NICENESS: Final = 10  # the engine's own threads go first
_SYSTEM_FOLDERS: Final = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
_SYSTEM_EXTRAS: Final = ("/etc/ld.so.cache", "/usr/share/zoneinfo")
_HOME: Final = "/sandbox"
_ENVIRONMENT: Final = {
    "HOME": _HOME,
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",  # numpy's libraries start a thread for each processor, over the limit on many
    "PATH": "/usr/bin",
}
_WRITABLE: Final = (_HOME, "/tmp", "/dev/shm")  # noqa: S108 - the sandbox's own, not this machine's


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What one piece of code may use, beside its time.

    Attributes:
        memory_bytes: Address space of each process, and resident memory of all of them together.
        processes: Processes and threads at once.
        folder_bytes: Files in its own folder, and as much again in /tmp and in /dev/shm.
        file_bytes: Each file.
        open_files: Files open at once, in each process.
        output_bytes: What it prints; it is stopped when it prints more.
    """

    memory_bytes: int = 2**30
    processes: int = 64
    folder_bytes: int = 64 * 2**20
    file_bytes: int = 32 * 2**20
    open_files: int = 128
    output_bytes: int = 64 * 1024


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """Makes commands.

    Attributes:
        program: Bubblewrap's program.
        interpreter: The Python that runs the code.
        syscall_filter: Program of the seccomp filter.
        limits: What each piece of code may use.
    """

    program: str
    interpreter: Interpreter
    syscall_filter: bytes
    limits: SandboxLimits

    @contextlib.contextmanager
    def launch(
        self, code: str, *, timeout_sec: float, before: Sequence[str] = ()
    ) -> Iterator[tuple[list[str], dict[str, Any]]]:
        """The command that runs a piece of code, and the arguments to `subprocess` it needs, while open.

        The first thing it prints is the line `ready`.
        """
        with contextlib.ExitStack() as open_files:
            task = json.dumps({"code": code, "before": list(before)}).encode()
            stdin = _memory_file(open_files, "task", task)
            seccomp = _memory_file(open_files, "filter", self.syscall_filter)
            command = [
                *self._walls(),
                "--seccomp",
                str(seccomp),
                "--",
                self.interpreter.executable,
                *("-I", "-u", "-X", "utf8", "-c", _RUNNER),
                json.dumps(self._setup(timeout_sec)),
            ]
            yield (
                command,
                {"stdin": stdin, "pass_fds": (seccomp,), "env": {}, "cwd": "/", **sandbox_identity()},
            )

    def _walls(self) -> list[str]:
        """Bubblewrap's arguments: what the code is in, and the little that it sees."""
        shown, hidden = _mounts(self.interpreter)
        size = str(self.limits.folder_bytes)
        writable = [part for folder in _WRITABLE for part in ("--size", size, "--tmpfs", folder)]
        return [
            self.program,
            "--unshare-all",
            "--unshare-user",
            *("--uid", str(NOBODY), "--gid", str(NOBODY), "--hostname", "sandbox"),
            "--new-session",
            "--die-with-parent",
            # Else the first process would be one of bubblewrap's own, left to the machine's init to collect,
            # and in a container there may be none.
            "--as-pid-1",
            "--clearenv",
            *(part for variable in _ENVIRONMENT.items() for part in ("--setenv", *variable)),
            # There is no /proc: it tells about the machine, and containers often forbid mounting it.
            *("--dev", "/dev"),
            *writable,
            *shown,
            *hidden,
            # These two are memory too, without a limit of their own.
            *("--remount-ro", "/dev", "--remount-ro", "/"),
            *("--chdir", _HOME),
        ]

    def _setup(self, timeout_sec: float) -> dict[str, Any]:
        limits = self.limits
        return {
            "packages": self.interpreter.packages,
            "niceness": _NICENESS,
            "limits": {
                "RLIMIT_CPU": int(timeout_sec) + 5,  # in case nobody is left to look at the clock
                "RLIMIT_AS": limits.memory_bytes,
                "RLIMIT_NPROC": limits.processes,
                "RLIMIT_FSIZE": limits.file_bytes,
                "RLIMIT_NOFILE": limits.open_files,
                "RLIMIT_MEMLOCK": 0,
                "RLIMIT_MSGQUEUE": 0,
                "RLIMIT_CORE": 0,
            },
        }


def sandbox_identity() -> Mapping[str, Any]:
    """Arguments for `subprocess` that keep a sandbox from being root's.

    Mapped to nobody inside, root would still be root to the kernel: it has no limit on processes, and owns
    whatever file of root's it gets to see.
    """
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}


def _mounts(interpreter: Interpreter) -> tuple[list[str], list[str]]:
    """Arguments that show folders of the system and of Python, and those that hide parts of them again."""
    shown: list[str] = []
    seen: list[Path] = []
    for name in (*_SYSTEM_FOLDERS, *_SYSTEM_EXTRAS, *interpreter.folders):
        path = Path(name)
        if not path.exists() or any(path.is_relative_to(folder) for folder in seen):
            continue
        if path.is_symlink() and name in _SYSTEM_FOLDERS:
            shown += ["--symlink", os.readlink(path), name]  # noqa: PTH115 - the link's text, not a path
        else:
            shown += ["--ro-bind", name, name]
            seen.append(path)
    hidden: list[str] = []
    for name in interpreter.hidden:
        if any(Path(name).is_relative_to(folder) for folder in seen):
            hidden += ["--size", "4096", "--tmpfs", name, "--remount-ro", name]
    return shown, hidden


def _memory_file(open_files: contextlib.ExitStack, name: str, content: bytes) -> int:
    descriptor = os.memfd_create(name)
    open_files.callback(os.close, descriptor)
    with os.fdopen(descriptor, "wb", closefd=False) as stream:
        stream.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor

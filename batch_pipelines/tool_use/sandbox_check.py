"""Whether code can be kept apart on this machine: set the sandbox up, and look from inside whether it holds.

Nothing is taken for granted: a probe program runs in the sandbox and reports what it can reach. Where
anything is reachable that should not be, or bubblewrap cannot do its work, there is no sandbox.
"""

import json
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from batch_pipelines.tool_use.bubblewrap import (
    NOBODY,
    READY,
    Bubblewrap,
    SandboxLimits,
    sandbox_identity,
)
from batch_pipelines.tool_use.interpreter import InterpreterUnusable, candidates, inspect_interpreter
from batch_pipelines.tool_use.process_memory import lists_children
from batch_pipelines.tool_use.sandbox import Sandbox
from batch_pipelines.tool_use.syscall_filter import syscall_filter

__all__ = ["SandboxUnavailable", "open_sandbox", "sandbox_available"]

_PROBE_SEC: Final = 60.0
_CANARY: Final = "BATCH_PIPELINES_SANDBOX_CANARY"
_PROBE: Final = """
import ctypes, json, os, socket

def reaches(address):
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex(address) == 0

def fails(call, *arguments):
    try:
        call(*arguments)
    except OSError:
        return True
    return False

facts = {{
    "it runs as a user other than nobody": os.getuid() != {nobody} or os.getgid() != {nobody},
    "it has a network interface": [name for _, name in socket.if_nameindex()] not in ([], ["lo"]),
    "it reaches this machine's own network": reaches(("127.0.0.1", {port})),
    "it sees other processes": os.getpid() != 1 or os.path.exists("/proc"),
    "it sees this process's files": any(map(os.path.exists, ({file!r}, {package!r}, "/etc/passwd"))),
    "it sees this process's environment": {variable!r} in os.environ,
    "it can write outside its folder": not all(
        fails(open, name, "w") for name in ("/probe", "/dev/probe", "/usr/lib/probe")
    ),
    "it cannot write in its folder": fails(open, "probe", "w"),
    "it can get more rights": ctypes.CDLL(None).prctl(39, 0, 0, 0, 0) != 1,
    "it can make system calls that are refused": not fails(os.memfd_create, "probe"),
}}
print(json.dumps([fact for fact, holds in facts.items() if holds]))
"""


class SandboxUnavailable(Exception):
    """Code cannot be kept apart on this machine; the message says why."""


def sandbox_available(python: Path | None = None) -> str | None:
    """Why code cannot be run in a sandbox on this machine, or None if it can; takes under a second.

    Args:
        python: The Python that is to run it; see `open_sandbox`.
    """
    try:
        open_sandbox(python)
    except SandboxUnavailable as error:
        return str(error)
    return None


def open_sandbox(python: Path | None = None, limits: SandboxLimits | None = None) -> Sandbox:
    """A sandbox that has been tried.

    Args:
        python: Program of the Python that is to run code, with the packages installed in it. If left out:
            the one this process runs on, or the system's, with nothing but the standard library.
        limits: What each piece of code may use.

    Raises:
        SandboxUnavailable: There is none to be had; with every reason.
    """
    program = shutil.which("bwrap")
    if program is None:
        raise SandboxUnavailable("bubblewrap is not installed: there is no program bwrap in PATH")
    if not lists_children():
        raise SandboxUnavailable("the kernel does not list a process's children, so memory cannot be watched")
    try:
        calls = syscall_filter()
    except ValueError as error:
        raise SandboxUnavailable(str(error)) from error
    try:
        subprocess.run(
            [program, "--version"], capture_output=True, cwd="/", check=False, **sandbox_identity()
        )
    except OSError as error:
        raise SandboxUnavailable(_cannot_start(error)) from error
    reasons = []
    for candidate in [python] if python is not None else candidates():
        try:
            interpreter = inspect_interpreter(
                candidate, with_packages=python is not None, identity=sandbox_identity()
            )
        except InterpreterUnusable as error:
            reasons.append(str(error))
            continue
        bubblewrap = Bubblewrap(program, interpreter, calls, limits or SandboxLimits())
        reason = _try(bubblewrap)
        if reason is None:
            return Sandbox(bubblewrap)
        reasons.append(f"with {candidate}: {reason}")
    raise SandboxUnavailable("; ".join(reasons) or "there is no Python 3 that could run the code")


def _cannot_start(error: OSError) -> str:
    if sandbox_identity():
        return (
            f"this process is root and cannot start bubblewrap as user {NOBODY} ({error.strerror}); "
            "run the deployment as a user other than root"
        )
    return f"bubblewrap cannot be started: {error.strerror}"


def _try(bubblewrap: Bubblewrap) -> str | None:
    """Run the probe; returns what is wrong."""
    with tempfile.NamedTemporaryFile() as file, socket.create_server(("127.0.0.1", 0)) as server:
        Path(file.name).chmod(0o644)
        program = _PROBE.format(
            nobody=NOBODY,
            port=server.getsockname()[1],
            file=file.name,
            package=str(Path(__file__).parent),
            variable=_CANARY,
        )
        with bubblewrap.launch(program, timeout_sec=_PROBE_SEC) as (command, arguments):
            arguments["env"] = {_CANARY: "1"}
            try:
                probe = subprocess.run(
                    command, capture_output=True, timeout=_PROBE_SEC, check=False, **arguments
                )
            except OSError as error:
                return _cannot_start(error)
            except subprocess.TimeoutExpired:
                return f"the sandbox did not come to an end within {_PROBE_SEC:.0f} seconds"
    said = (probe.stdout.removeprefix(READY) + probe.stderr).decode(errors="replace").strip()
    if probe.returncode != 0:
        return f"bubblewrap could not set the sandbox up: {said or f'exit code {probe.returncode}'}"
    try:
        found = json.loads(said)
    except ValueError:
        return f"the sandbox's probe gave no answer: {said}"
    return "the sandbox does not hold: " + ", ".join(found) if found else None

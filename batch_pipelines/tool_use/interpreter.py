"""Which Python runs a model's code, and which folders of it the sandbox has to show."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["Interpreter", "InterpreterUnusable", "candidates", "inspect_interpreter"]

_TIMEOUT_SEC: Final = 30.0
_REASON_CHARS: Final = 300
_QUESTION: Final = """
import json, os, site, sys, sysconfig
print(json.dumps({
    "executable": os.path.realpath(sys.executable),
    "prefix": sys.base_prefix,
    "version": list(sys.version_info[:2]),
    "installed": site.getsitepackages(),
    "packages": sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}),
}))
"""
_OLDEST: Final = [3, 8]


class InterpreterUnusable(Exception):
    """A Python cannot run a model's code; the message says why."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python installation.

    Attributes:
        executable: Its program, links followed.
        folders: What of it the sandbox has to show: the program and its libraries.
        hidden: Folders among those that are not shown: packages the code has no use of.
        packages: Folders of packages the code may import, beside the standard library.
    """

    executable: str
    folders: tuple[str, ...]
    hidden: tuple[str, ...]
    packages: tuple[str, ...]


def candidates() -> list[Path]:
    """Where to look for a Python: the one this process runs on, without its environment, and the system's."""
    own = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    system = (Path("/usr/bin/python3"), Path("/usr/local/bin/python3"))
    return list(dict.fromkeys(path.resolve() for path in (own, *system) if path.exists()))


def inspect_interpreter(python: Path, *, with_packages: bool, identity: Mapping[str, Any]) -> Interpreter:
    """Ask a Python what it consists of.

    Args:
        python: Its program; of a virtual environment too.
        with_packages: Whether the code may import what is installed in it.
        identity: Arguments for `subprocess` by which the sandbox is started: a Python that this user cannot
            read is of no use to it.

    Raises:
        InterpreterUnusable: It cannot be started, or is too old.
    """
    try:
        asked = subprocess.run(
            [str(python), "-I", "-c", _QUESTION],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={},
            cwd="/",
            timeout=_TIMEOUT_SEC,
            check=False,
            **identity,
        )
        found = json.loads(asked.stdout)
    except OSError as error:
        reason = f"{python} cannot be started by the sandbox's user: {error.strerror}"
        raise InterpreterUnusable(reason) from error
    except subprocess.TimeoutExpired as error:
        raise InterpreterUnusable(f"{python} did not answer within {_TIMEOUT_SEC:.0f} seconds") from error
    except ValueError as error:
        said = asked.stderr.decode(errors="replace").strip()[-_REASON_CHARS:]
        raise InterpreterUnusable(f"{python} does not work as a Python: {said}") from error
    if found["version"] < _OLDEST:
        raise InterpreterUnusable(f"{python} is Python {found['version'][0]}.{found['version'][1]}, too old")
    libraries = [folder for name in ("lib", "lib64") if (folder := Path(found["prefix"], name)).is_dir()]
    packages = [path for path in found["packages"] if Path(path).is_dir()] if with_packages else []
    hidden = [] if with_packages else [path for path in found["installed"] if Path(path).is_dir()]
    return Interpreter(
        executable=found["executable"],
        folders=(found["executable"], *map(str, libraries), *packages),
        hidden=tuple(hidden),
        packages=tuple(packages),
    )

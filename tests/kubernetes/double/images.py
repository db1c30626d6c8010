"""The images that nodes can pull: names that stand for an environment of this machine."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Image", "this_environment"]

_PLAIN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Image:
    """An image.

    Attributes:
        environment: Variables that containers start from; PATH is added where it is not there.
        entrypoint: Program that `args` without `command` are for.
        command: What runs when a container says nothing.
        directory: Working directory; None for an empty folder of the container's own.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    directory: str | None = None

    def base_environment(self) -> dict[str, str]:
        """Variables that containers start from."""
        return {"PATH": _PLAIN_PATH, **self.environment}


def this_environment(**variables: str) -> Image:
    """Return an image with the programs of the virtual environment that the tests run in, and the project."""
    programs = Path(sys.executable).parent
    project = Path(__file__).parents[3]
    return Image(
        environment={
            "PATH": f"{programs}:{_PLAIN_PATH}",
            "VIRTUAL_ENV": str(programs.parent),
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            **variables,
        },
        directory=str(project),
    )

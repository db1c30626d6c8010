"""Puts this package on top of an image that has vLLM, without changing what the image has.

Used while Dockerfile.gpu is built, with nothing but the standard library and `packaging`:

    python3 gpu_overlay.py link ENVIRONMENT          # by the image's own Python
    ENVIRONMENT/bin/python gpu_overlay.py check ENVIRONMENT vllm==0.32.0

`link` makes the image's packages importable from an environment of ours, after its own. `check` fails the
build where that went wrong: another vLLM, a torch of ours before the image's, a version that vLLM refuses.
"""

import importlib.metadata
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["link", "problems"]

_HEAVY = ("torch", "vllm", "triton", "xgrammar", "flashinfer", "numpy", "transformers")
"""Packages that must come from the image: they were built for each other."""


def link(environment: Path) -> None:
    """Have the environment look for packages where this Python finds vLLM, after its own.

    Args:
        environment: A virtual environment of this Python.

    Raises:
        SystemExit: This Python has no vLLM.
    """
    packages = _home_of("vllm")
    if packages is None:
        raise SystemExit(f"{sys.executable} has no vllm: BASE must be an image with it")
    site = Path(sysconfig.get_path("purelib", "venv", vars={"base": str(environment)}))
    # `addsitedir`, since the image's packages may have .pth files of their own.
    (site / "image.pth").write_text(f"import site; site.addsitedir({str(packages)!r})\n", encoding="utf-8")


def problems(environment: Path, vllm: str) -> Iterator[str]:
    """What is wrong with the environment this Python runs in.

    Args:
        environment: Where it lies.
        vllm: The distribution and version there must be, such as `vllm==0.32.0`.
    """
    from packaging.requirements import Requirement

    wanted = Requirement(vllm)
    try:
        engine = importlib.metadata.distribution(wanted.name)
    except importlib.metadata.PackageNotFoundError:
        yield f"{wanted.name} is not installed"
        return
    if not wanted.specifier.contains(engine.version, prereleases=True):
        yield f"{wanted.name} is {engine.version}, not {wanted.specifier}"
    for name in _HEAVY:
        home = _home_of(name)
        if home is not None and home.is_relative_to(environment):
            yield f"{name} is in {environment}: it must be the image's own"
    here = [path for path in sys.path if Path(path).is_relative_to(environment)]
    ours = {_plain(found.metadata["Name"]) for found in importlib.metadata.distributions(path=here)}
    for text in engine.requires or ():
        requirement = Requirement(text)
        if _plain(requirement.name) not in ours:
            continue
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        version = importlib.metadata.version(requirement.name)
        if not requirement.specifier.contains(version, prereleases=True):
            yield f"vLLM wants {text}, and {requirement.name} is {version}"


def _home_of(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent.parent if spec is not None and spec.origin else None


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _main(arguments: Sequence[str]) -> None:
    match arguments:
        case ["link", environment]:
            link(Path(environment))
        case ["check", environment, vllm]:
            found = list(problems(Path(environment), vllm))
            if found:
                raise SystemExit("\n".join(found))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    _main(sys.argv[1:])

"""The folder and the environment of a Dagster that runs on this machine alone."""

import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import orjson

from batch_pipelines.settings import Settings

__all__ = ["local_environment", "prepare_home", "workspace_file"]

_CPU_ENGINE_ARGS = {"enforce_eager": True, "max_model_len": 2048}
_CPU_ENGINE_ENV = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; by default each engine takes a share of all memory
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # by default every engine binds to the same cores
}
_GPU_DEVICES = ("nvidia0", "nvidiactl", "kfd", "dxg")


def prepare_home(settings: Settings) -> Path:
    """Make DAGSTER_HOME with its configuration, and return it. Runs of earlier starts are kept.

    A DAGSTER_HOME of the user's own is left alone: it may belong to another deployment.
    """
    home = settings.home.absolute() / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    template = files("batch_pipelines.cli").joinpath("dagster.local.yaml").read_text(encoding="utf-8")
    (home / "dagster.yaml").write_text(template, encoding="utf-8")
    return home


def workspace_file(settings: Settings, home: Path) -> Path:
    """The workspace to load: the checkout's, if started in one, or one made for the installed package."""
    checkout = Path.cwd() / "workspace.yaml"
    if checkout.is_file():
        return checkout
    made = home / "workspace.yaml"
    made.write_text(
        "load_from:\n"
        "  - python_module:\n"
        "      module_name: batch_pipelines.definitions\n"
        f"      location_name: {settings.location}\n",
        encoding="utf-8",
    )
    return made


def local_environment(settings: Settings, home: Path, url: str) -> dict[str, str]:
    """The environment of Dagster's processes.

    Without a GPU the engine gets defaults that suit a small model on a CPU, where the user has set none.
    """
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "BATCH_PIPELINES_HOME": str(settings.home.absolute()),
        "BATCH_PIPELINES_DAGSTER_URL": url,
        "PYTHONUNBUFFERED": "1",
    }
    if settings.engine == "vllm" and not _has_gpu():
        unset = {name: value for name, value in _CPU_ENGINE_ENV.items() if name not in os.environ}
        defaults: Mapping[str, str] = {
            "BATCH_PIPELINES_ENGINE_ARGS": orjson.dumps(_CPU_ENGINE_ARGS).decode(),
            "BATCH_PIPELINES_ENGINE_ENV": orjson.dumps(unset).decode(),
        }
        environment = {**defaults, **environment}
    return environment


def _has_gpu() -> bool:
    return any(Path("/dev", name).exists() for name in _GPU_DEVICES)

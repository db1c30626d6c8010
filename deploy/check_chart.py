"""Renders Dagster's Helm chart with a deployment's values and checks what comes out, offline.

    python deploy/check_chart.py CHART [VALUES ...]

CHART is the unpacked official chart (`helm pull dagster/dagster --version 1.13.27 --untar`), which is no part
of this repository. VALUES are files of values, later ones over earlier ones, as with `helm -f`; without any
it is deploy/helm/values.yaml. It needs the program `helm`, or the package `helm-python-sdk`, which is too
large to come with the development environment.

Checked: the chart's own schema of values; every object strictly against Kubernetes' published schemas; that
no object brings rights or secrets of its own; that the instance's settings are those of deploy/dagster.yaml.
With VALUES the last is told and no problem, since a deployment may want it otherwise.
"""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import yaml  # type: ignore[import-untyped]

__all__ = ["instance_differences", "main", "render", "violations"]

_DEPLOY: Final = Path(__file__).parent
_RELEASE: Final = "dagster"
_NAMESPACE: Final = "batch-pipelines"
_DEFINITIONS: Final = re.compile(r"https://[^\"#]+/_definitions\.json")
"""Kubernetes' own types, to which the chart's schemas of values refer by an address on the net."""
_VERSIONS: Final = ("1.29", "1.33", "1.37")
_FORBIDDEN: Final = frozenset(
    {"ClusterRole", "ClusterRoleBinding", "Ingress", "Role", "RoleBinding", "Secret", "ServiceAccount"}
)
_NOT_COMPARED: Final = frozenset(
    {"event_log_storage", "run_storage", "schedule_storage", "scheduler", "storage"}
)
"""The chart writes the storage three times, in its older form, and the scheduler, which is the default."""
_NAMED_BY_THE_CHART: Final = {
    "run_launcher": ("job_namespace", "instance_config_map", "env_config_maps", "env_secrets"),
    "compute_logs": ("bucket", "verify"),
}
_LEFT_OUT: Final = ("run_retries", "max_retries", 0)
"""The chart takes 0 for nothing, and 0 is Dagster's default."""

Json = dict[str, Any]


def render(chart: Path, values: Sequence[Path]) -> list[Json]:
    """The objects that the chart makes of these values.

    Args:
        chart: The chart's folder.
        values: Files of values; later ones go before earlier ones.

    Raises:
        SystemExit: Values or templates are wrong, or nothing is there to render with.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "dagster")
        shutil.copytree(chart, copy)
        _repair_schemas(copy, Path(folder))
        text = _by_program(copy, values) if shutil.which("helm") else _by_package(copy, values)
    return [found for found in yaml.safe_load_all(text) if found]


def violations(objects: Sequence[Json]) -> Iterator[str]:
    """What Kubernetes' published schemas say against objects, and what this deployment does not want."""
    for found in objects:
        name = f"{found['kind']} {found['metadata']['name']}"
        if found["kind"] in _FORBIDDEN:
            yield f"{name}: not wanted from the chart"
        for version in _VERSIONS:
            try:
                kubernetes_validate.validate(found, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                yield f"{name} ({version}): {'.'.join(map(str, error.path))}: {error.message}"


def instance_differences(objects: Sequence[Json]) -> Iterator[str]:
    """Where the instance that the chart writes is not that of deploy/dagster.yaml.

    Args:
        objects: From `render`.
    """
    ours = yaml.safe_load((_DEPLOY / "dagster.yaml").read_text(encoding="utf-8"))
    theirs = next(
        yaml.safe_load(found["data"]["dagster.yaml"])
        for found in objects
        if found["kind"] == "ConfigMap" and "dagster.yaml" in (found.get("data") or {})
    )
    for section in sorted((ours.keys() | theirs.keys()) - _NOT_COMPARED):
        one, other = (_plain(side.get(section), section) for side in (ours, theirs))
        if one != other:
            yield f"{section}: dagster.yaml has {json.dumps(one)}, the chart {json.dumps(other)}"


def main(arguments: Sequence[str]) -> int:
    """Check a chart; print what is wrong, and what there is."""
    if not arguments or not Path(arguments[0], "Chart.yaml").is_file():
        print(__doc__, file=sys.stderr)
        return 2
    chart, own = Path(arguments[0]), [Path(name) for name in arguments[1:]]
    missing = [str(path) for path in own if not path.is_file()]
    if missing:
        print(f"no such file of values: {', '.join(missing)}", file=sys.stderr)
        return 2
    objects = render(chart, own or [_DEPLOY / "helm" / "values.yaml"])
    wrong, differences = list(violations(objects)), list(instance_differences(objects))
    version = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))["version"]
    for found in objects:
        print(f"{found['kind']:<14}{found['metadata']['name']}")
    if own:
        for difference in differences:
            print(f"not a problem: {difference}")
    else:
        wrong += differences
    print(f"chart {version}: {len(objects)} objects, {len(wrong)} problems")
    print(*wrong, sep="\n", file=sys.stderr)
    return 1 if wrong else 0


def _plain(section: Any, name: str) -> Any:
    """A section without what the chart names in its own way, in one spelling."""
    if not isinstance(section, dict):
        return section
    config = section.get("config") or {}
    left = {key: value for key, value in config.items() if key not in _NAMED_BY_THE_CHART.get(name, ())}
    section = {**section, "config": left} if config else section
    return {key: value for key, value in section.items() if (name, key, value) != _LEFT_OUT}


def _repair_schemas(chart: Path, folder: Path) -> None:
    """Have the chart's schemas of values refer to definitions that are here."""
    source = files(kubernetes_validate) / "kubernetes-json-schema" / "v1.28.0-local" / "_definitions.json"
    types = json.loads(source.read_text(encoding="utf-8"))["$defs"]
    local = folder / "definitions.json"
    # The chart looks for them under the older name, they for each other under the newer one.
    local.write_text(json.dumps({"definitions": types, "$defs": types}), encoding="utf-8")
    for schema in chart.rglob("values.schema.json"):
        text = _DEFINITIONS.sub(local.as_uri(), schema.read_text(encoding="utf-8"))
        schema.write_text(text, encoding="utf-8")


def _by_program(chart: Path, values: Sequence[Path]) -> str:
    options = [part for file in values for part in ("--values", str(file))]
    command = ["helm", "template", _RELEASE, str(chart), "--namespace", _NAMESPACE, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


def _by_package(chart: Path, values: Sequence[Path]) -> str:
    try:
        helm = importlib.import_module("helm_python")
    except ImportError:
        raise SystemExit(
            "neither `helm` nor the package is here: pip install helm-python-sdk==0.2.2"
        ) from None
    merged: Json = {}
    for file in values:
        merged = _merged(merged, yaml.safe_load(file.read_text(encoding="utf-8")) or {})
    try:
        with helm.Chart.load(str(chart)) as loaded:
            loaded.validate_schema(merged)
            rendered = loaded.render(merged, name=_RELEASE, namespace=_NAMESPACE)
    except helm.HelmError as error:
        raise SystemExit(str(error)) from error
    texts = (text for path, text in sorted(rendered.items()) if not path.endswith("NOTES.txt"))
    return "\n---\n".join(texts)


def _merged(under: Json, over: Json) -> Json:
    """Values over values, as Helm does: objects are merged, all else is replaced."""
    result = dict(under)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = _merged(result[key], value) if both else value
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The instances in deploy/: taken by Dagster as they are, and the same from the chart's values."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from dagster._config import process_config, resolve_to_config_type
from dagster._core.errors import DagsterInvalidConfigError
from dagster._core.instance.ref import InstanceRef
from dagster._serdes import ConfigurableClassData

DEPLOY = Path(__file__).parents[2] / "deploy"
INSTANCES = ("dagster.yaml", "compose/dagster.yaml")
INSTANCE = yaml.safe_load((DEPLOY / "dagster.yaml").read_text(encoding="utf-8"))
VALUES = yaml.safe_load((DEPLOY / "helm" / "values.yaml").read_text(encoding="utf-8"))


def snake(value: Any, *, depth: int = 9) -> Any:
    """The chart's spelling in Dagster's, so many levels deep."""
    if isinstance(value, dict) and depth:
        return {
            re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", key).lower(): snake(item, depth=depth - 1)
            for key, item in value.items()
        }
    return [snake(item, depth=depth) for item in value] if isinstance(value, list) and depth else value


def variables_in(value: Any) -> set[str]:
    if isinstance(value, list):
        return {name for item in value for name in variables_in(item)}
    if not isinstance(value, dict):
        return set()
    return {value["env"]} if value.keys() == {"env"} else variables_in(list(value.values()))


@pytest.mark.parametrize("name", INSTANCES)
def test_dagster_takes_every_section(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it does when a process starts, but for what connects to a database or a cluster."""
    text = (DEPLOY / name).read_text(encoding="utf-8")
    for variable in variables_in(yaml.safe_load(text)):
        monkeypatch.setenv(variable, "some-value")
    (tmp_path / "dagster.yaml").write_text(text, encoding="utf-8")
    reference = InstanceRef.from_dir(str(tmp_path))
    parts = [part for part in reference if isinstance(part, ConfigurableClassData)]
    assert {"PostgresRunStorage", "QueuedRunCoordinator"} <= {part.class_name for part in parts}
    for part in parts:
        made = getattr(importlib.import_module(part.module_name), part.class_name)
        outcome = process_config(resolve_to_config_type(made.config_type()), dict(part.config_dict))
        assert outcome.success, f"{part.class_name}: {outcome.errors}"


def test_wrong_key_would_be_noticed(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text(
        yaml.safe_dump({**INSTANCE, "run_monitorings": {}}), encoding="utf-8"
    )
    with pytest.raises(DagsterInvalidConfigError, match="run_monitorings"):
        InstanceRef.from_dir(str(tmp_path))


@pytest.mark.parametrize("name", INSTANCES)
def test_lost_runs_are_retried_and_never_resumed(name: str) -> None:
    """Resuming would keep a cancelled run's step pods alive."""
    instance = yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))
    assert instance["run_monitoring"]["enabled"]
    assert instance["run_monitoring"]["max_resume_run_attempts"] == 0
    assert instance["run_retries"] == {"enabled": True, "max_retries": 0}
    assert instance["telemetry"] == {"enabled": False}


def test_database_is_spoken_to_by_the_installed_driver() -> None:
    storage = INSTANCE["storage"]["postgres"]["postgres_db"]
    chart = VALUES["postgresql"]
    assert storage["scheme"] == chart["postgresqlScheme"] == "postgresql+psycopg2"
    assert storage["params"] == chart["postgresqlParams"]


def test_chart_gives_the_daemon_the_same_settings() -> None:
    daemon = VALUES["dagsterDaemon"]
    queue = daemon["runCoordinator"]
    assert snake(daemon["runMonitoring"]) == INSTANCE["run_monitoring"]
    assert snake(daemon["runRetries"]) == INSTANCE["run_retries"]
    assert snake(daemon["sensors"]) == INSTANCE["sensors"]
    assert snake(daemon["schedules"]) == INSTANCE["schedules"]
    assert queue["type"] == INSTANCE["run_coordinator"]["class"]
    limits = INSTANCE["run_coordinator"]["config"]
    assert snake(queue["config"]["queuedRunCoordinator"], depth=1) == limits
    assert (
        snake({key: value for key, value in VALUES["retention"].items() if key != "enabled"})
        == (INSTANCE["retention"])
    )
    assert VALUES["telemetry"] == INSTANCE["telemetry"]


def test_chart_launches_the_same_run_workers() -> None:
    launcher = VALUES["runLauncher"]["config"]["k8sRunLauncher"]
    config = INSTANCE["run_launcher"]["config"]
    assert VALUES["runLauncher"]["type"] == INSTANCE["run_launcher"]["class"]
    assert launcher["securityContext"] == config["security_context"]
    assert snake(launcher["runK8sConfig"], depth=1) == config["run_k8s_config"]
    assert launcher["imagePullPolicy"] == config["image_pull_policy"]
    named = VALUES["global"]
    assert named["serviceAccountName"] == config["service_account_name"]
    assert named["postgresqlSecretName"] == config["postgres_password_secret"]
    assert named["dagsterHome"] == config["dagster_home"]


def test_chart_keeps_compute_logs_the_same_way() -> None:
    config = {**INSTANCE["compute_logs"]["config"], "bucket": None}
    assert VALUES["computeLogManager"]["type"] == INSTANCE["compute_logs"]["class"]
    assert {**snake(VALUES["computeLogManager"]["config"]["s3ComputeLogManager"]), "bucket": None} == config

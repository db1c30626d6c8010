"""The check of Dagster's chart: what it finds in objects. The chart itself is no part of this repository."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from deploy import check_chart
from deploy.check_chart import instance_differences, main, render, violations

DEPLOY = Path(__file__).parents[2] / "deploy"


def instance(**changes: Any) -> dict[str, Any]:
    """The ConfigMap in which the chart writes the instance."""
    found = yaml.safe_load((DEPLOY / "dagster.yaml").read_text(encoding="utf-8"))
    text = yaml.safe_dump({**found, **changes})
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "dagster-instance"},
        "data": {"dagster.yaml": text},
    }


def test_what_kubernetes_would_refuse_is_told() -> None:
    config_map = instance()
    assert list(violations([config_map])) == []
    found = list(violations([{**config_map, "datta": {}}]))
    assert len(found) == len(check_chart._VERSIONS)
    assert "ConfigMap dagster-instance" in found[0]
    assert "datta" in found[0]


def test_rights_of_the_charts_own_are_told() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "passwords"}}
    assert list(violations([secret])) == ["Secret passwords: not wanted from the chart"]


def test_instance_that_is_another_is_told() -> None:
    assert list(instance_differences([instance()])) == []
    (found,) = instance_differences([instance(run_monitoring={"enabled": False})])
    assert found.startswith("run_monitoring: ")


def test_values_over_values_are_merged_as_helm_does() -> None:
    under = {"a": {"b": 1, "c": [1, 2]}, "d": 1}
    assert check_chart._merged(under, {"a": {"c": [3]}, "d": {"e": 1}}) == {
        "a": {"b": 1, "c": [3]},
        "d": {"e": 1},
    }
    assert under == {"a": {"b": 1, "c": [1, 2]}, "d": 1}


def test_folder_without_a_chart_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "CHART" in capsys.readouterr().err


def test_own_values_are_taken_in_order_and_may_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "Chart.yaml").write_text("version: 1.2.3\n", encoding="utf-8")
    own = [tmp_path / "one.yaml", tmp_path / "two.yaml"]
    for path in own:
        path.write_text("{}\n", encoding="utf-8")
    asked: list[list[Path]] = []

    def rendered(_chart: Path, values: list[Path]) -> list[dict[str, Any]]:
        asked.append(values)
        return [instance(run_monitoring={"enabled": False})]

    monkeypatch.setattr(check_chart, "render", rendered)
    assert main([str(tmp_path), *map(str, own)]) == 0
    assert "run_monitoring" in capsys.readouterr().out
    assert main([str(tmp_path)]) == 1
    assert "run_monitoring" in capsys.readouterr().err
    assert asked == [own, [DEPLOY / "helm" / "values.yaml"]]


def test_file_of_values_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "Chart.yaml").write_text("version: 1.2.3\n", encoding="utf-8")
    assert main([str(tmp_path), str(tmp_path / "my-values.yaml")]) == 2
    assert "my-values.yaml" in capsys.readouterr().err


def test_without_helm_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "chart").mkdir()
    monkeypatch.setitem(sys.modules, "helm_python", None)
    with pytest.raises(SystemExit, match="helm-python-sdk"):
        render(tmp_path / "chart", [DEPLOY / "helm" / "values.yaml"])


def test_types_that_schemas_of_values_refer_to_are_found_here(tmp_path: Path) -> None:
    schema = tmp_path / "values.schema.json"
    address = "https://example.com/v1.18.0/_definitions.json"
    schema.write_text(f'{{"$ref": "{address}#/definitions/io.k8s.api.core.v1.Volume"}}', encoding="utf-8")
    check_chart._repair_schemas(tmp_path, tmp_path)
    local = (tmp_path / "definitions.json").as_uri()
    assert schema.read_text(encoding="utf-8") == (
        f'{{"$ref": "{local}#/definitions/io.k8s.api.core.v1.Volume"}}'
    )

"""Whole manifests, kept in `golden/`, and valid by Kubernetes' published schemas.

After a change that is meant, this writes the files anew; the difference is what to look at:

    REWRITE_GOLDEN=1 python -m pytest -n 0 tests/unit/kubernetes/test_golden_manifests.py
"""

import os
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml  # type: ignore[import-untyped]

from tests.unit.kubernetes.manifests import REPLICA_IMAGE, SMALL_OPS, manifests

GOLDEN = Path(__file__).with_name("golden")
REPLICA = ("run_inference",)
SETTINGS = {"replica_image": REPLICA_IMAGE, "service_account": "steps", "pod_labels": ("team", "product")}
VERSIONS = ("1.29", "1.37")

CASES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "nvidia-one-gpu": (REPLICA, {"gpus": 1, "gpu_type": "nvidia-hopper-h100"}),
    "nvidia-mig-slice": (REPLICA, {"gpus": 1, "gpu_type": "nvidia-hopper-h100-1g20gb"}),
    "nvidia-several-nodes": (REPLICA, {"gpus": 8, "gpu_type": "nvidia-ampere-a100e", "nodes_per_worker": 2}),
    "eks-eight-gpus-labels-priority": (
        REPLICA,
        {
            "profile": "eks",
            "settings": {
                **SETTINGS,
                "priority_classes": {"high": "batch-high", "default": "batch"},
                "kueue_queue": "gpus",
            },
            "model": "meta-llama/Llama-3.1-70B-Instruct",
            "gpus": 8,
            "gpu_type": "nvidia-hopper-h100",
            "cpus": "64",
            "memory": "0.5Ti",
            "storage": 500 * 10**9,
            "priority": "high",
            "labels": {"team": "search", "stage": "v1.2"},
        },
    ),
    "gke-one-gpu": (REPLICA, {"profile": "gke", "gpus": 1, "gpu_type": "nvidia-ampere-a100"}),
    "gke-mig-slice": (REPLICA, {"profile": "gke", "gpus": 1, "gpu_type": "nvidia-hopper-h100-3g40gb"}),
    "cpu-only": (REPLICA, {"gpus": 0, "cpus": "1500m", "memory": "4Gi", "storage": "10Gi"}),
    "small-steps": (SMALL_OPS, {"gpus": 1, "gpu_type": "nvidia-tesla-t4", "labels": {"team": "search"}}),
}


@pytest.mark.parametrize("case", CASES)
def test_manifests_are_as_kept(case: str, tmp_path: Path) -> None:
    ops, request = CASES[case]
    jobs = manifests(tmp_path, **{"settings": SETTINGS, **request})
    made = [_without_version(jobs[op]) for op in ops]
    path = GOLDEN / f"{case}.yaml"
    if os.environ.get("REWRITE_GOLDEN"):
        path.write_text(yaml.safe_dump_all(made, sort_keys=True, width=110))
    assert list(yaml.safe_load_all(path.read_text())) == made


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", CASES)
def test_kept_manifests_are_valid(case: str, version: str) -> None:
    for job in yaml.safe_load_all((GOLDEN / f"{case}.yaml").read_text()):
        kubernetes_validate.validate(job, version, strict=True)


def test_every_kept_manifest_is_compared() -> None:
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == set(CASES)


def test_validation_is_strict(tmp_path: Path) -> None:
    job = manifests(tmp_path, gpus=1, gpu_type="nvidia-tesla-t4")["run_inference"]
    job["spec"]["template"]["spec"]["node_selector"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, VERSIONS[-1], strict=True)


def _without_version(job: dict[str, Any]) -> dict[str, Any]:
    """Dagster puts its own version on all it makes."""
    for labels in (job["metadata"]["labels"], job["spec"]["template"]["metadata"]["labels"]):
        labels.pop("app.kubernetes.io/version")
    return job

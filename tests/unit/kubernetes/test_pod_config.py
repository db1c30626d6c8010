"""What a request, its hardware and the deployment make of pods, seen in the manifests Kubernetes gets."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from batch_pipelines.assets import batch_completions
from batch_pipelines.hardware.given import HardwareInvalid
from batch_pipelines.hardware.plan import Hardware
from batch_pipelines.kubernetes.cluster_table import load_cluster_table
from batch_pipelines.kubernetes.pod_config import PodSettings, pods_of, pods_without_request
from tests.support.hardware import make_request
from tests.unit.kubernetes.manifests import (
    JOB_ID,
    OPERATOR,
    SMALL_OPS,
    container_of,
    jobs_of,
    launcher,
    manifests,
    pod_of,
)

T4: dict[str, Any] = {"gpus": 1, "gpu_type": "nvidia-tesla-t4"}
OURS = "batch-pipelines-shm"


def replica(folder: Path, **request: Any) -> dict[str, Any]:
    return manifests(folder, **{**T4, **request})["run_inference"]


def test_every_op_of_the_job_has_its_pods(tmp_path: Path) -> None:
    graph = batch_completions.node_def
    assert isinstance(graph, dg.GraphDefinition)
    assert set(manifests(tmp_path, **T4)) == set(graph.node_dict)


def test_two_requests_differ_as_asked(tmp_path: Path) -> None:
    one = replica(tmp_path, priority="low", labels={"team": "a"}, cpus=2, memory="8Gi", storage="20Gi")
    other = replica(
        tmp_path,
        gpus=4,
        gpu_type="nvidia-ampere-a10",
        priority="high",
        labels={"team": "b"},
        cpus="2500m",
        memory=16e9,
        storage="1e11",
        settings={"priority_classes": {"high": "batch-high"}, "pod_labels": ("team",)},
    )
    assert container_of(one)["resources"]["limits"] == {
        "cpu": "2",
        "memory": "8Gi",
        "ephemeral-storage": "20Gi",
        "nvidia.com/gpu": "1",
    }
    assert container_of(other)["resources"]["limits"] == {
        "cpu": "2500m",
        "memory": "15625000Ki",
        "ephemeral-storage": "97656250Ki",
        "nvidia.com/gpu": "4",
    }
    assert "priorityClassName" not in pod_of(one)
    assert pod_of(other)["priorityClassName"] == "batch-high"
    labels = [job["spec"]["template"]["metadata"]["labels"] for job in (one, other)]
    assert [each["label.batch-pipelines/team"] for each in labels] == ["a", "b"]
    assert ["team" in each for each in labels] == [False, True]


def test_requests_equal_limits_in_every_pod(tmp_path: Path) -> None:
    for job in manifests(tmp_path, **T4, operator=OPERATOR).values():
        resources = container_of(job)["resources"]
        assert resources["requests"] == resources["limits"]


@pytest.mark.parametrize("op", [*SMALL_OPS, "run_inference"])
def test_what_an_operator_gave_run_workers_alone_stays_there(tmp_path: Path, op: str) -> None:
    plain = pod_of(manifests(tmp_path, **T4)[op])
    job = manifests(tmp_path, **T4, operator=OPERATOR)[op]
    pod = pod_of(job)
    for key in ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints"):
        assert pod.get(key) == plain.get(key)
    assert container_of(job)["resources"] == plain["containers"][0]["resources"]
    assert {"priorityClassName", "runtimeClassName", "activeDeadlineSeconds"}.isdisjoint(pod)
    assert (job["spec"]["backoffLimit"], job["spec"]["ttlSecondsAfterFinished"]) == (0, 3600)


@pytest.mark.parametrize("op", [*SMALL_OPS, "run_inference"])
def test_what_steps_need_of_an_operators_settings_stays(tmp_path: Path, op: str) -> None:
    job = manifests(tmp_path, **T4, operator=OPERATOR)[op]
    pod, container = pod_of(job), container_of(job)
    assert {"name": "BATCH_PIPELINES_STORE", "value": "s3://bucket/jobs"} in container["env"]
    assert container["envFrom"] == [{"secretRef": {"name": "batch-pipelines"}}]
    assert {"name": "ca", "mountPath": "/etc/ca"} in container["volumeMounts"]
    assert {"name": "ca", "configMap": {"name": "ca"}} in pod["volumes"]
    assert (pod["serviceAccountName"], pod["schedulerName"]) == ("runs", "bin-packer")
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["securityContext"]["fsGroup"] == 1000
    assert job["metadata"]["labels"]["cost-centre"] == "42"
    assert job["spec"]["template"]["metadata"]["annotations"]["mesh/inject"] == "false"


def test_no_pod_has_more_rights_than_it_needs(tmp_path: Path) -> None:
    for job in manifests(tmp_path, **T4, settings={"service_account": "steps"}).values():
        pod = pod_of(job)
        assert (pod["automountServiceAccountToken"], pod["serviceAccountName"]) == (False, "steps")
        assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        assert container_of(job)["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }


def test_only_pods_that_run_a_models_code_get_its_profile(tmp_path: Path) -> None:
    table = tmp_path / "cluster.yaml"
    table.write_text(
        "code_evaluator:\n"
        "  seccomp_profile: {type: Localhost, localhost_profile: p.json}\n"
        "  app_armor_profile: {type: Unconfined}\n"
    )

    def profiles(**request: Any) -> dict[str, Any]:
        jobs = manifests(tmp_path, table=table, **T4, **request)
        return {op: container_of(job)["securityContext"].get("seccompProfile") for op, job in jobs.items()}

    own = {"type": "Localhost", "localhostProfile": "p.json"}
    assert profiles(tool_config={"name": "code_evaluator"}) == {
        "validate_request": own,
        "shard_inputs": None,
        "merge_outputs": None,
        "run_inference": own,
    }
    assert set(profiles().values()) == {None}


def test_shared_memory_is_a_quarter_of_the_replicas_memory(tmp_path: Path) -> None:
    jobs = manifests(tmp_path, **T4, memory="6Gi")
    (volume,) = pod_of(jobs["run_inference"])["volumes"]
    assert volume == {"name": OURS, "emptyDir": {"medium": "Memory", "sizeLimit": "1536Mi"}}
    assert container_of(jobs["run_inference"])["volumeMounts"] == [{"name": OURS, "mountPath": "/dev/shm"}]
    assert all(not pod_of(jobs[op])["volumes"] for op in SMALL_OPS)


def test_replicas_alone_are_kept_from_disruption_and_queued(tmp_path: Path) -> None:
    jobs = manifests(tmp_path, **T4, settings={"kueue_queue": "gpus", "replica_image": "gpu:1"})
    for op, job in jobs.items():
        annotations = job["spec"]["template"]["metadata"]["annotations"]
        is_replica = op == "run_inference"
        assert ("karpenter.sh/do-not-disrupt" in annotations) is is_replica
        assert (job["metadata"]["labels"].get("kueue.x-k8s.io/queue-name") == "gpus") is is_replica
        assert (container_of(job)["image"] == "gpu:1") is is_replica
        assert pod_of(job)["terminationGracePeriodSeconds"] == (60 if is_replica else 30)


def test_jobs_and_pods_say_whose_they_are(tmp_path: Path) -> None:
    for op, job in manifests(tmp_path, **T4, model="owner/name with spaces").items():
        for metadata in (job["metadata"], job["spec"]["template"]["metadata"]):
            labels = metadata["labels"]
            assert labels["batch-pipelines/job-id"] == JOB_ID
            assert labels["batch-pipelines/step"] == op
            component = "replica" if op == "run_inference" else "small-step"
            assert labels["batch-pipelines/component"] == component
            assert metadata["annotations"]["batch-pipelines/model"] == "owner/name with spaces"


def test_pods_do_not_wait_long_for_a_lost_node(tmp_path: Path) -> None:
    for job in manifests(tmp_path, **T4).values():
        lost = [t for t in pod_of(job)["tolerations"] if t["key"].startswith("node.kubernetes.io/")]
        assert {(t["key"], t["tolerationSeconds"]) for t in lost} == {
            ("node.kubernetes.io/not-ready", 60),
            ("node.kubernetes.io/unreachable", 60),
        }


def test_nodes_without_a_label_are_asked_for_as_such(tmp_path: Path) -> None:
    job = manifests(tmp_path, profile="gke", gpus=1, gpu_type="nvidia-ampere-a100")["run_inference"]
    required = pod_of(job)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": "cloud.google.com/gke-gpu-partition-size", "operator": "DoesNotExist"}]}
    ]


def test_a_cluster_may_name_runtime_network_and_cpu_nodes(tmp_path: Path) -> None:
    table = tmp_path / "cluster.yaml"
    table.write_text(
        "gpu_types:\n"
        "  nvidia-hopper-h100: {runtime_class: nvidia, multi_node_resources: {vpc.amazonaws.com/efa: 32}}\n"
        "cpu_node: {node_labels: {pool: cpu}}\n"
    )
    h100: dict[str, Any] = {"gpus": 8, "gpu_type": "nvidia-hopper-h100"}
    alone, group, cpus = (
        manifests(tmp_path, table=table, **request)["run_inference"]
        for request in (h100, {**h100, "nodes_per_worker": 3}, {"gpus": 0})
    )
    assert pod_of(alone)["runtimeClassName"] == "nvidia"
    assert "vpc.amazonaws.com/efa" not in container_of(alone)["resources"]["limits"]
    assert container_of(group)["resources"]["limits"]["vpc.amazonaws.com/efa"] == "32"
    assert {key: group["spec"][key] for key in ("completionMode", "completions", "parallelism")} == {
        "completionMode": "Indexed",
        "completions": 3,
        "parallelism": 3,
    }
    assert container_of(group)["command"] == ["python", "-m", "batch_pipelines.kubernetes.node"]
    assert container_of(group)["args"][:3] == ["dagster", "api", "execute_step"]
    assert pod_of(cpus)["nodeSelector"] == {"pool": "cpu"}
    assert "runtimeClassName" not in pod_of(cpus)


def test_gpus_that_the_cluster_lacks_are_an_error_of_the_request() -> None:
    hardware = Hardware(1000, 1, 2**30, 2**30, "nvidia-ampere-a10", 1, 1, 1, ())
    settings = PodSettings(load_cluster_table("gke"))
    with pytest.raises(HardwareInvalid, match="/gpu_type: this cluster has no nvidia-ampere-a10"):
        pods_of(make_request(), hardware, settings, job_id=JOB_ID, deadline_sec=1)


def test_a_run_whose_request_cannot_be_read_gets_small_pods(tmp_path: Path) -> None:
    settings = PodSettings(load_cluster_table("nvidia"), service_account="steps")
    jobs = jobs_of(launcher(tmp_path), pods_without_request(settings))
    assert set(jobs) == set(SMALL_OPS)
    for job in jobs.values():
        assert pod_of(job)["automountServiceAccountToken"] is False
        assert container_of(job)["resources"]["limits"]["memory"]
        assert "batch-pipelines/job-id" not in job["metadata"]["labels"]

"""The double's own: containers are processes that see nothing of the test, and none outlives its pod."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kubernetes.double.cluster import DoubleCluster
from tests.kubernetes.double.images import Image
from tests.kubernetes.plain_jobs import WAITS_FOR_TERM, Clients, clients_of
from tests.support.processes import gone, pids_in, wait_until

# A child in the background, one in a session of its own, and one whose parent has ended.
FAMILY = (
    "sleep 600 & setsid sleep 600 & sh -c 'setsid sleep 600 & echo $! >> {file}' & sleep 0.2; "
    "jobs -p >> {file}"
)


def test_a_container_gets_the_image_and_not_the_test(
    on_double: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_TEST", "x")
    name = on_double.start("env; command -v dagster; python -c 'import batch_pipelines'")
    assert on_double.wait_for_end(name)[0] == "Complete"
    log = on_double.log(on_double.pod_name(name))
    variables = {line.partition("=")[0] for line in log.splitlines() if "=" in line}
    assert variables == {
        "HOME", "HOSTNAME", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "LANG", "PATH", "PWD",
        "PYTHONUNBUFFERED", "TMPDIR", "VIRTUAL_ENV",
    }  # fmt: skip
    assert log.splitlines()[-1] == str(Path(sys.executable).parent / "dagster")


def test_images_have_commands_of_their_own() -> None:
    image = Image(entrypoint=("echo", "from"), command=("the image",))
    with DoubleCluster(images={"own:1": image}) as double, clients_of(double) as on_double:
        told = []
        for fields in ({}, {"args": ["args"]}, {"command": ["echo"], "args": ["all of it"]}):
            name = on_double.start("", container={"image": "own:1", "command": None, **fields})
            on_double.wait_for_end(name)
            told.append(on_double.log(on_double.pod_name(name)).strip())
        assert told == ["from the image", "from args", "all of it"]


def test_pods_have_addresses_and_folders_of_their_own(on_double: Clients) -> None:
    jobs = [on_double.start('echo "$HOME $TMPDIR"; ls -A "$HOME" "$TMPDIR"') for _ in range(2)]
    for job in jobs:
        on_double.wait_for_end(job)
    assert len({on_double.pod(job)["status"]["podIP"] for job in jobs}) == 2
    assert len({on_double.log(on_double.pod_name(job)) for job in jobs}) == 2


@pytest.mark.parametrize("end", ["exit", "evict", "oom", "delete", "stop"])
def test_no_process_outlives_its_container(
    double: DoubleCluster, on_double: Clients, tmp_path: Path, end: str
) -> None:
    file = tmp_path / "pids"
    script = FAMILY.format(file=file)
    name = on_double.start(f"{script}; {'true' if end == 'exit' else WAITS_FOR_TERM.format(code=0)}")
    pids = pids_in(file, 4)
    if end != "exit":
        pod = on_double.wait_until_up(name)
        pids += double.pids()
        match end:
            case "evict":
                double.evict(pod)
            case "oom":
                double.oom_kill(pod)
            case "delete":
                on_double.delete_job(name)
            case "stop":
                double.stop()
    wait_until(lambda: all(gone(pid) for pid in pids))


def test_no_process_outlives_the_test(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    program = f"""
import time
from tests.kubernetes.double.cluster import DoubleCluster
from tests.kubernetes.plain_jobs import clients_of
with DoubleCluster() as double, clients_of(double) as on_double:
    on_double.start({FAMILY.format(file=file) + "; sleep 600"!r})
    time.sleep(600)
"""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", program], env=environment, cwd=root) as process:
        pids = pids_in(file, 4)
        process.send_signal(signal.SIGKILL)
    wait_until(lambda: all(gone(pid) for pid in pids))


def test_a_command_without_a_handler_does_not_get_sigterm(on_double: Clients) -> None:
    # As process 1 of a container; what takes its whole grace to end is found out here.
    name = on_double.start("", container={"command": ["sleep", "600"]}, terminationGracePeriodSeconds=1)
    on_double.wait_for_phase(name, "Running")
    begun = time.monotonic()
    on_double.delete_job(name)
    wait_until(lambda: not on_double.pods(name))
    assert time.monotonic() - begun >= 1


def test_a_shorter_grace_counts_from_when_it_is_said(on_double: Clients) -> None:
    name = on_double.start(
        "trap '' TERM; echo up; while :; do sleep 0.05; done", terminationGracePeriodSeconds=600
    )
    pod = on_double.wait_until_up(name)
    on_double.core.delete_namespaced_pod(pod, on_double.namespace)
    on_double.core.delete_namespaced_pod(pod, on_double.namespace, grace_period_seconds=1)
    wait_until(lambda: on_double.wait_for_end(name)[0] == "Failed")


def test_a_container_that_fails_is_started_again_where_it_should(on_double: Clients, tmp_path: Path) -> None:
    file = tmp_path / "tries"
    script = f"echo try >> {file}; echo $(wc -l < {file}); test $(wc -l < {file}) = 3"
    name = on_double.start(script, restartPolicy="OnFailure", job={"backoffLimit": 6})
    assert on_double.wait_for_end(name)[0] == "Complete"
    pod = on_double.pod(name)
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 2
    assert on_double.log(pod["metadata"]["name"]) == "3\n"
    assert on_double.log(pod["metadata"]["name"], previous=True) == "2\n"


def test_init_containers_run_first(on_double: Clients, tmp_path: Path) -> None:
    file = tmp_path / "made"
    init = {
        "name": "before",
        "image": on_double.cluster.image,
        "command": ["sh", "-c", f"echo made > {file}"],
    }
    name = on_double.start(f"cat {file}", initContainers=[init])
    assert on_double.wait_for_end(name)[0] == "Complete"
    assert on_double.log(on_double.pod_name(name)) == "made\n"


def test_a_pod_has_a_deadline_of_its_own(on_double: Clients) -> None:
    name = on_double.start(WAITS_FOR_TERM.format(code=0), activeDeadlineSeconds=1)
    assert on_double.wait_for_end(name)[0] == "Failed"
    assert on_double.pod(name)["status"]["reason"] == "DeadlineExceeded"


def test_the_log_of_a_pod_that_is_gone_is_kept_for_the_test(
    double: DoubleCluster, on_double: Clients
) -> None:
    name = on_double.start(WAITS_FOR_TERM.format(code=0))
    pod = on_double.wait_until_up(name)
    on_double.delete_job(name)
    wait_until(lambda: not on_double.pods(name))
    assert "got TERM" in double.log(pod)


def test_a_config_map_over_a_file_of_this_machine_has_to_be_equal(on_double: Clients, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("here")
    volume = {"name": "v", "configMap": {"name": "files"}}
    mount = {"name": "v", "mountPath": str(tmp_path / "a.yaml"), "subPath": "a.yaml"}
    data = {"metadata": {"name": "files"}, "data": {"a.yaml": "there", "b.yaml": "no matter"}}
    on_double.core.create_namespaced_config_map(on_double.namespace, data)
    name = on_double.start("true", volumes=[volume], container={"volumeMounts": [mount]})
    assert "has other content" in on_double.wait_for_event(on_double.pod_name(name), "FailedMount")
    on_double.core.patch_namespaced_config_map("files", on_double.namespace, {"data": {"a.yaml": "here"}})
    assert on_double.wait_for_end(name)[0] == "Complete"

"""A job on real vLLM, with its processes killed under it, and one that is cancelled."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from batch_pipelines.api.job import JobStatus
from batch_pipelines.jobs.folder import JobFolder
from batch_pipelines.models.smollm2 import NAME
from tests.support.deployment import Deployment, deployment
from tests.support.jobs import chat
from tests.support.processes import gone, wait_until

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

MODEL = {"model": NAME, "max_num_seqs": 8}
MODELS_DIR = Path(os.environ.get("BATCH_PIPELINES_HOME", ".batch-pipelines")).absolute() / "models"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("vllm")
    with deployment(folder, {"BATCH_PIPELINES_MODELS_DIR": str(MODELS_DIR)}) as site:
        yield site


def engines() -> dict[int, list[int]]:
    """Process ids of the running vLLM servers, by the step each belongs to."""
    found: dict[int, list[int]] = {}
    for process in psutil.process_iter(["cmdline", "ppid"]):
        command = process.info["cmdline"] or []
        if any("vllm.entrypoints" in word for word in command) and not any("reaper" in w for w in command):
            reaper = psutil.Process(process.info["ppid"])
            found.setdefault(reaper.ppid(), []).append(process.pid)
    return found


def vllm_processes() -> set[int]:
    """Process ids of everything that is vLLM's."""
    return {
        process.pid
        for process in psutil.process_iter(["cmdline", "name"])
        if any("vllm.entrypoints" in word for word in process.info["cmdline"] or [])
        or (process.info["name"] or "").startswith("VLLM::")
    }


def wait_for_more_commits(site: Deployment, job_id: str) -> set[int]:
    before = len(site.committed(job_id))
    wait_until(lambda: len(site.committed(job_id)) > before, within_sec=240, every_sec=0.1)
    return site.committed(job_id)


def test_killed_engine_step_and_run_worker_lose_nothing(site: Deployment) -> None:
    count = 260
    items = [
        chat(f"Count from {n} upwards.", max_tokens=24, temperature=0, custom_id=n) for n in range(count)
    ]
    items[100] = {"messages": [], "custom_id": 100}
    job_id = site.submit("faults", items, data_parallelism=2, model_config=MODEL)
    folder = JobFolder(site.settings.job_store, job_id)

    wait_until(lambda: len(engines()) == 2, within_sec=120, every_sec=0.5)
    wait_for_more_commits(site, job_id)
    # One that is killed before it was up ends its replica: the other then finishes the job alone.
    wait_until(
        lambda: [r.engine_starts for r in site.reports(job_id)] == [1, 1], within_sec=120, every_sec=0.2
    )
    committed = site.committed(job_id)
    manifest = site.manifest(job_id)
    assert manifest is not None
    parts = {shard: site.store.read(folder.part(manifest.fingerprint, shard)) for shard in committed}

    step, servers = sorted(engines().items())[0]
    os.kill(servers[0], signal.SIGKILL)
    wait_for_more_commits(site, job_id)

    wait_until(lambda: step in engines(), within_sec=120, every_sec=0.5)
    os.kill(step, signal.SIGKILL)
    wait_until(lambda: step not in engines(), every_sec=0.5)
    wait_for_more_commits(site, job_id)

    survivor = next(iter(engines()))
    worker = psutil.Process(survivor).parent()
    assert worker is not None
    os.kill(worker.pid, signal.SIGKILL)
    wait_until(lambda: gone(survivor) and survivor not in engines(), within_sec=60, every_sec=0.5)
    assert len(site.committed(job_id)) < len(manifest.shards)

    view = site.wait_for_end(job_id, within_sec=400)
    assert view.job.status is JobStatus.COMPLETED
    records = site.records("faults")
    assert [record["custom_id"] for record in records] == list(range(count))
    assert [n for n, record in enumerate(records) if "error" in record] == [100]
    assert all(record["choices"][0]["message"]["content"] for n, record in enumerate(records) if n != 100)
    assert {s: site.store.read(folder.part(manifest.fingerprint, s)) for s in parts} == parts
    claimed_again = {
        int(info.uri.rsplit("/", 1)[1].split(".")[0])
        for info in site.store.list(folder.claims(manifest.fingerprint))
        if not info.uri.endswith(".1")
    }
    assert not claimed_again & committed
    assert not vllm_processes()


def test_cancelled_job_leaves_no_engine_behind(site: Deployment) -> None:
    items = [chat(f"Tell me about the number {n}.", max_tokens=24) for n in range(400)]
    job_id = site.submit("cancel", items, data_parallelism=2, model_config=MODEL)
    wait_for_more_commits(site, job_id)
    assert vllm_processes()
    site.client.terminate(site.view(job_id).run.run_id)
    assert site.wait_for_end(job_id).job.status is JobStatus.CANCELLED
    wait_until(lambda: not vllm_processes(), every_sec=0.5)
    assert site.committed(job_id)
    assert not site.output("cancel").exists()

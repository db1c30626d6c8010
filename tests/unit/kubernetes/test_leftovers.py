from collections.abc import Collection

from batch_pipelines.jobs.pod_notes import PodNote
from batch_pipelines.kubernetes.leftovers import end_leftovers
from batch_pipelines.storage.errors import StorageError
from tests.unit.kubernetes.pods import FakeCluster, job, pod, terminated, unschedulable


def _end(cluster: FakeCluster, over: Collection[str]) -> tuple[list[str], list[tuple[str, str]]]:
    notes: list[tuple[str, str]] = []
    log: list[str] = []

    def keep(run_id: str, note: PodNote) -> None:
        notes.append((run_id, note.reason))

    return end_leftovers(cluster, lambda runs: set(runs) & set(over), keep, log.append), notes


def test_steps_of_a_run_that_is_over_are_deleted() -> None:
    left = job(name="left", run_id="over")
    working = job(name="working", run_id="running")
    cluster = FakeCluster(left, pod(left), working, pod(working))
    assert _end(cluster, {"over"}) == (["left"], [])


def test_steps_that_have_ended_are_kept_for_their_logs() -> None:
    cluster = FakeCluster(job(name="done", run_id="over", complete=True))
    assert _end(cluster, {"over"}) == ([], [])


def test_a_run_worker_that_never_started_is_deleted_and_explained() -> None:
    waiting = job("", name="dagster-run-1", run_id="over")
    cluster = FakeCluster(waiting, unschedulable(waiting))
    assert _end(cluster, {"over"}) == (["dagster-run-1"], [("over", "Unschedulable")])


def test_a_run_worker_that_was_killed_is_explained() -> None:
    killed = job("", name="dagster-run-1", run_id="over", failed="BackoffLimitExceeded")
    cluster = FakeCluster(killed, terminated(killed, "OOMKilled", 137))
    assert _end(cluster, {"over"}) == ([], [("over", "OOMKilled")])


def test_nothing_is_asked_of_dagster_when_there_are_no_jobs() -> None:
    def must_not_be_asked(_runs: Collection[str]) -> Collection[str]:
        raise AssertionError

    assert end_leftovers(FakeCluster(), must_not_be_asked, lambda _run, _note: None, print) == []


def test_one_job_that_cannot_be_deleted_does_not_save_the_others() -> None:
    cluster = FakeCluster(job(name="one", run_id="over"), job(name="two", run_id="over"))
    cluster.stubborn = {"one"}
    assert _end(cluster, {"over"}) == (["two"], [])


def test_notes_that_cannot_be_kept_do_not_keep_jobs() -> None:
    waiting = job("", name="dagster-run-1", run_id="over")
    cluster = FakeCluster(waiting, unschedulable(waiting))
    log: list[str] = []

    def keep(_run_id: str, _note: PodNote) -> None:
        raise StorageError("the store is away")

    assert end_leftovers(cluster, set, keep, log.append) == ["dagster-run-1"]
    assert "the store is away" in log[0]

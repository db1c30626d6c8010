from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from batch_pipelines.jobs.pod_notes import PodNote
from batch_pipelines.kubernetes.notebook import Notebook
from batch_pipelines.kubernetes.watch import Patience, PodWatch
from tests.support.processes import wait_until
from tests.unit.kubernetes.pods import (
    NOW,
    FakeCluster,
    job,
    pod,
    terminated,
    unschedulable,
    waiting_for_image,
)


class Scene:
    """A watch over a cluster that a test arranges."""

    def __init__(self, *things: dict[str, Any]) -> None:
        self.cluster = FakeCluster(*things)
        self.notes: list[PodNote] = []
        self.log: list[str] = []
        self.stand_ins: list[FakeStandIn] = []
        self.committed = False
        self.now = NOW
        self.watch = PodWatch(
            self.cluster,
            "run",
            patience=Patience(start_sec=600.0),
            notes=Notebook(self.cluster, self.notes.append, self.log.append, self._now),
            all_committed=lambda: self.committed,
            stand_in=self._start,
            log=self.log.append,
            now=self._now,
        )

    def look_after(self, *seconds: float) -> None:
        """Look now, and again after each of these times."""
        self.watch.look()
        for wait in seconds:
            self.now += timedelta(seconds=wait)
            self.watch.look()

    def _now(self) -> datetime:
        return self.now

    def _start(self, of: Mapping[str, Any]) -> "FakeStandIn":
        self.stand_ins.append(FakeStandIn(of["metadata"]["name"]))
        return self.stand_ins[-1]


class FakeStandIn:
    """A step that ends when a test says so."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.exit_code: int | None = None
        self.stopped = False

    def poll(self) -> int | None:
        return self.exit_code

    def stop(self) -> None:
        self.stopped = True


def test_why_a_pod_failed_is_noted_once() -> None:
    failed = job(failed="BackoffLimitExceeded")
    scene = Scene(failed, terminated(failed, "OOMKilled", 137))
    scene.watch.look()
    scene.watch.look()
    assert [(note.step, note.reason) for note in scene.notes] == [("run_inference[replica_00]", "OOMKilled")]
    assert len(scene.log) == 1


def test_a_pod_that_vanished_with_its_node_is_noted() -> None:
    scene = Scene(job("shard_inputs", failed="BackoffLimitExceeded"))
    scene.watch.look()
    assert [(note.step, note.reason) for note in scene.notes] == [("shard_inputs", "PodLost")]


def test_a_replica_may_wait_while_others_work() -> None:
    one, two = job(), job("run_inference[replica_01]", name="dagster-step-2")
    scene = Scene(one, unschedulable(one), two, pod(two))
    scene.look_after(59)
    assert scene.notes == []
    scene.look_after(30, 400)
    assert scene.stand_ins == []
    assert scene.cluster.deleted == []
    assert [note.kind for note in scene.notes] == ["waiting"]  # told once what it waits for
    assert "Insufficient nvidia.com/gpu" in scene.log[0]


def test_a_waiting_replica_does_not_hold_up_a_job_that_is_all_done() -> None:
    one = job()
    scene = Scene(one, unschedulable(one))
    scene.committed = True
    scene.look_after(20)
    assert [stand_in.name for stand_in in scene.stand_ins] == ["dagster-step-1"]
    assert scene.notes == []
    scene.look_after(0)
    assert scene.cluster.deleted == []
    scene.stand_ins[0].exit_code = 0
    scene.look_after(0)
    assert scene.cluster.deleted == []  # Dagster must read first that the step is done
    scene.look_after(20)
    assert scene.cluster.deleted == ["dagster-step-1"]
    assert len(scene.stand_ins) == 1


def test_a_pod_that_started_after_all_is_not_deleted_for_its_stand_in() -> None:
    one = job()
    scene = Scene(one, unschedulable(one))
    scene.committed = True
    scene.look_after(20)
    scene.stand_ins[0].exit_code = 0
    scene.cluster.put(one, pod(one))
    scene.look_after(20, 20)
    assert scene.cluster.deleted == []


def test_few_stand_ins_work_at_a_time() -> None:
    waiting = [job(f"run_inference[replica_{n:02d}]", name=f"dagster-step-{n}") for n in range(5)]
    scene = Scene(*waiting, *map(unschedulable, waiting))
    scene.committed = True
    scene.look_after(20)
    assert len(scene.stand_ins) == 2
    scene.stand_ins[0].exit_code = 0
    scene.look_after(0)
    assert len(scene.stand_ins) == 3


@pytest.mark.parametrize(
    ("make", "reason", "after_sec"),
    [(unschedulable, "Unschedulable", 600), (waiting_for_image, "ImagePullBackOff", 300)],
)
def test_a_replica_that_waits_too_long_is_given_up(make: Any, reason: str, after_sec: float) -> None:
    one = job()
    scene = Scene(one, make(one))
    scene.look_after(after_sec - 1)
    assert scene.stand_ins == []
    scene.look_after(1)
    assert [(note.reason, note.kind) for note in scene.notes] == [(reason, "waiting"), (reason, "given up")]
    assert len(scene.stand_ins) == 1


def test_a_pod_that_is_still_pulling_its_image_is_not_given_up_early() -> None:
    one = job()
    scene = Scene(one, pod(one, "Pending", state={"waiting": {"reason": "ContainerCreating"}}))
    scene.look_after(590)
    assert [note.kind for note in scene.notes] == ["waiting"]


def test_a_small_step_that_waits_too_long_is_ended_and_soon_again() -> None:
    first = job("merge_outputs")
    scene = Scene(first, unschedulable(first))
    scene.look_after(601)
    assert scene.cluster.deleted == ["dagster-step-1"]
    again = job("merge_outputs", name="dagster-step-1-1")
    scene.cluster.put(again, unschedulable(again))
    scene.look_after(31)
    assert scene.cluster.deleted == ["dagster-step-1", "dagster-step-1-1"]
    assert scene.stand_ins == []


def test_a_job_without_any_pod_says_what_forbids_it() -> None:
    scene = Scene(job())
    scene.cluster.warnings["dagster-step-1"] = ["exceeded quota: gpus"]
    scene.look_after(601)
    assert scene.notes[-1].reason == "FailedCreate"
    assert "exceeded quota: gpus" in scene.notes[-1].message


def test_a_job_that_a_queue_holds_back_waits_as_long_as_it_takes() -> None:
    scene = Scene(job(suspend=True))
    scene.look_after(100_000)
    assert scene.notes == []
    one = job()
    scene.cluster.put(one, pod(one, "Pending", state={"waiting": {"reason": "ContainerCreating"}}))
    scene.look_after(50)  # let in at last: only now its time begins
    assert scene.notes == []
    assert scene.stand_ins == []


def test_a_queued_replica_does_not_hold_up_a_job_that_is_all_done() -> None:
    scene = Scene(job(suspend=True))
    scene.committed = True
    scene.watch.look()
    assert len(scene.stand_ins) == 1


def test_a_replica_whose_queue_takes_its_place_away_starts_anew() -> None:
    one = job()
    scene = Scene(one, pod(one))
    scene.watch.look()
    scene.cluster.put(job(suspend=True))
    scene.watch.look()
    assert scene.cluster.deleted == ["dagster-step-1"]
    assert [(note.reason, note.kind) for note in scene.notes] == [("Preempted", "disruption")]


def test_a_gang_of_which_one_waits_is_told_and_given_up_in_time() -> None:
    one = job()
    scene = Scene(one, pod(one), waiting_for_image(one))
    scene.look_after(61)
    assert [(note.reason, note.kind) for note in scene.notes] == [("ImagePullBackOff", "waiting")]
    scene.look_after(240)
    assert scene.notes[-1].kind == "given up"
    assert scene.cluster.deleted == ["dagster-step-1"]
    assert scene.stand_ins == []


def test_of_two_attempts_of_a_step_the_earlier_one_is_ended() -> None:
    first, second = job(), job(name="dagster-step-1-1")
    scene = Scene(first, pod(first), second, pod(second))
    scene.watch.look()
    assert scene.cluster.deleted == ["dagster-step-1"]


def test_at_the_end_nothing_is_left_and_what_waited_says_why() -> None:
    running, waiting = job(), job("run_inference[replica_01]", name="dagster-step-2")
    over = job("validate_request", name="dagster-step-0", complete=True)
    scene = Scene(over, waiting, unschedulable(waiting))
    scene.cluster.put(over, running, waiting, unschedulable(waiting))
    scene.watch.start()
    scene.watch.stop()
    assert sorted(scene.cluster.deleted) == ["dagster-step-1", "dagster-step-2"]
    assert [(note.step, note.reason, note.kind) for note in scene.notes] == [
        ("run_inference[replica_01]", "Unschedulable", "failure")
    ]


def test_what_cannot_be_deleted_does_not_save_the_others() -> None:
    scene = Scene(job(), job("merge_outputs", name="dagster-step-2"))
    scene.cluster.stubborn = {"dagster-step-1"}
    scene.watch.start()
    scene.watch.stop()
    assert scene.cluster.deleted == ["dagster-step-2"]
    assert "a sensor ends them" in scene.log[-1]


def test_a_cluster_that_does_not_answer_ends_nothing() -> None:
    scene = Scene(job())
    scene.cluster.answers = False
    scene.watch.start()
    scene.watch.stop()
    assert "answered 503" in scene.log[-1]


def test_whatever_goes_wrong_in_a_look_there_is_another_one() -> None:
    one = job()
    scene = Scene(one, unschedulable(one))

    def broken() -> bool:
        raise LookupError("a manifest that cannot be read")

    scene.watch._all_committed = broken
    scene.now += timedelta(seconds=100)
    scene.watch._waits_since["dagster-step-1"] = NOW
    scene.watch.start()
    wait_until(lambda: bool(scene.log), within_sec=20)
    scene.watch._all_committed = lambda: True
    wait_until(lambda: bool(scene.stand_ins), within_sec=20)
    scene.watch.stop()
    assert "a manifest that cannot be read" in scene.log[0]


def test_stand_ins_end_with_the_watch() -> None:
    one = job()
    scene = Scene(one, unschedulable(one))
    scene.look_after(601)
    scene.watch.start()
    scene.watch.stop()
    assert scene.stand_ins[0].stopped

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from batch_pipelines.jobs.pod_notes import PodNote
from batch_pipelines.kubernetes.watch import Patience, PodWatch
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
            keep_note=self.notes.append,
            all_committed=lambda: self.committed,
            stand_in=self._start,
            log=self.log.append,
            now=self._now,
        )

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
    one, two = job(age_sec=500), job("run_inference[replica_01]", name="dagster-step-2", age_sec=500)
    scene = Scene(one, unschedulable(one), two, pod(two))
    scene.watch.look()
    scene.watch.look()
    assert scene.stand_ins == []
    assert scene.cluster.deleted == []
    assert len(scene.log) == 1  # told once what it waits for
    assert "Insufficient nvidia.com/gpu" in scene.log[0]


def test_a_waiting_replica_does_not_hold_up_a_job_that_is_all_done() -> None:
    one = job(age_sec=30)
    scene = Scene(one, unschedulable(one))
    scene.committed = True
    scene.watch.look()
    assert [stand_in.name for stand_in in scene.stand_ins] == ["dagster-step-1"]
    assert scene.notes == []
    scene.watch.look()
    assert scene.cluster.deleted == []
    scene.stand_ins[0].exit_code = 0
    scene.watch.look()
    assert scene.cluster.deleted == []  # Dagster must read first that the step is done
    scene.now += timedelta(seconds=20)
    scene.watch.look()
    assert scene.cluster.deleted == ["dagster-step-1"]
    assert len(scene.stand_ins) == 1


@pytest.mark.parametrize(
    ("make", "reason", "age_sec"),
    [(unschedulable, "Unschedulable", 601), (waiting_for_image, "ImagePullBackOff", 301)],
)
def test_a_replica_that_waits_too_long_is_given_up(make: Any, reason: str, age_sec: float) -> None:
    one = job(age_sec=age_sec)
    scene = Scene(one, make(one))
    scene.watch.look()
    assert [(note.reason, note.given_up) for note in scene.notes] == [(reason, True)]
    assert len(scene.stand_ins) == 1


def test_a_pod_that_is_still_pulling_its_image_is_not_given_up_early() -> None:
    one = job(age_sec=590)
    scene = Scene(one, pod(one, "Pending", state={"waiting": {"reason": "ContainerCreating"}}))
    scene.watch.look()
    assert scene.notes == []


def test_a_small_step_that_waits_too_long_is_ended_and_soon_again() -> None:
    first = job("merge_outputs", age_sec=601)
    scene = Scene(first, unschedulable(first))
    scene.watch.look()
    assert scene.cluster.deleted == ["dagster-step-1"]
    again = job("merge_outputs", name="dagster-step-1-1", age_sec=31)
    scene.cluster.put(again, unschedulable(again))
    scene.watch.look()
    assert scene.cluster.deleted == ["dagster-step-1", "dagster-step-1-1"]
    assert scene.stand_ins == []


def test_a_job_without_any_pod_says_what_forbids_it() -> None:
    one = job(age_sec=601)
    scene = Scene(one)
    scene.cluster.warnings["dagster-step-1"] = ["exceeded quota: gpus"]
    scene.watch.look()
    assert scene.notes[0].reason == "FailedCreate"
    assert "exceeded quota: gpus" in scene.notes[0].message


def test_a_job_that_a_queue_holds_back_waits_as_long_as_it_takes() -> None:
    scene = Scene(job(age_sec=100_000, suspend=True))
    scene.watch.look()
    assert scene.notes == []
    assert scene.stand_ins == []
    scene.committed = True
    scene.watch.look()
    assert len(scene.stand_ins) == 1


def test_of_several_pods_one_that_runs_is_enough_to_leave_them_alone() -> None:
    one = job(age_sec=10_000)
    scene = Scene(one, pod(one), unschedulable(one))
    scene.watch.look()
    assert scene.notes == []
    assert scene.stand_ins == []


def test_at_the_end_nothing_is_left_and_what_waited_says_why() -> None:
    running, waiting = job(), job("run_inference[replica_01]", name="dagster-step-2", age_sec=20)
    over = job("validate_request", name="dagster-step-0", complete=True)
    scene = Scene(over, running, pod(running), waiting, unschedulable(waiting))
    scene.watch.start()
    scene.watch.stop()
    assert sorted(scene.cluster.deleted) == ["dagster-step-1", "dagster-step-2"]
    assert [(note.step, note.reason, note.given_up) for note in scene.notes] == [
        ("run_inference[replica_01]", "Unschedulable", False)
    ]


def test_a_cluster_that_does_not_answer_ends_nothing() -> None:
    scene = Scene(job())
    scene.cluster.answers = False
    scene.watch.start()
    scene.watch.stop()
    assert "does not answer" in scene.log[-1]


def test_stand_ins_end_with_the_watch() -> None:
    one = job(age_sec=601)
    scene = Scene(one, unschedulable(one))
    scene.watch.look()
    scene.watch.start()
    scene.watch.stop()
    assert scene.stand_ins[0].stopped


def test_a_replica_whose_queue_takes_its_place_away_starts_anew() -> None:
    one = job()
    scene = Scene(one, pod(one))
    scene.watch.look()
    scene.cluster.put(job(suspend=True))
    scene.watch.look()
    assert scene.cluster.deleted == ["dagster-step-1"]
    assert [(note.reason, note.given_up) for note in scene.notes] == [("Preempted", False)]

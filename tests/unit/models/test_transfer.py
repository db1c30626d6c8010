"""Many downloads at once: they overlap, their number is bounded, and one fault stops them all."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from batch_pipelines.models.transfer import Job, Transfer, TransferStopped

WAIT_SEC = 30


def transfer() -> Transfer:
    return Transfer(100, "s3://b/m", lambda _: None)


def nothing() -> None:
    pass


def test_jobs_overlap_up_to_the_number_allowed() -> None:
    barrier = threading.Barrier(3)
    running, most, lock = 0, 0, threading.Lock()

    def job() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        barrier.wait(WAIT_SEC)
        with lock:
            running -= 1

    transfer().run(iter([job] * 9), at_once=3, check=nothing)
    assert most == 3


def test_jobs_are_taken_only_as_threads_fall_free() -> None:
    taken: list[int] = []
    seen: list[int] = []

    def job() -> None:
        seen.append(len(taken))

    def jobs() -> Iterator[Job]:
        for number in range(10):
            taken.append(number)
            yield job

    transfer().run(jobs(), at_once=2, check=nothing)
    assert len(seen) == 10
    assert seen[0] <= 2


def test_first_fault_stops_the_others_and_starts_no_more() -> None:
    moving = transfer()
    started: list[str] = []

    def endless() -> None:
        started.append("endless")
        while True:
            moving.add(1)

    def broken() -> None:
        raise ValueError("mine")

    def never() -> None:
        started.append("never")

    with pytest.raises(ValueError, match="mine"):
        moving.run(iter([endless, broken, never, never]), at_once=2, check=nothing)
    assert started == ["endless"]


def test_what_check_raises_stops_the_jobs() -> None:
    moving = transfer()
    stopped = threading.Event()
    begun = threading.Event()

    def endless() -> None:
        try:
            while True:
                moving.add(1)
                begun.set()
        except TransferStopped:
            stopped.set()

    def check() -> None:
        if begun.is_set():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        moving.run(iter([endless]), at_once=2, check=check)
    assert stopped.is_set()

"""Stage 3: one replica pulls shards until every shard of the job is committed.

The replica works on an event loop in a thread of its own, so that the calling thread, where
interrupts arrive, can end it at any moment. Whatever ends it, the engine is stopped before this
returns, and committed shards stay committed. How items reach the engine is in
`batch_pipelines.feeding`.
"""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from batch_pipelines.feeding.replica import Replica, ReplicaResult
from batch_pipelines.stages.job import JobFailed

__all__ = ["ParentGone", "run_replica", "stop_when"]

_LOOK_SEC = 0.25
_ASK_SEC = 15.0
_UNTOLD_SEC = 300.0


class ParentGone(Exception):
    """The process that started this one has died, and nobody waits for its work any more."""


def stop_when(*, deadline: float | None, is_over: Callable[[], bool] = lambda: False) -> Callable[[], None]:
    """A check that raises when a replica should stop.

    Args:
        deadline: Unix time at which the job's `max_runtime_sec` ends; None for no end.
        is_over: Whether the run has been ended elsewhere, asked every 15 s.

    Returns:
        A function that raises `JobFailed` past the deadline or when the run is over, and
        `ParentGone` when this process has lost its parent: a run worker that was killed must not
        leave replicas holding GPUs, on this machine or another.
    """
    parent = os.getppid()
    asked_at = told_at = time.monotonic()

    def check() -> None:
        if deadline is not None and time.time() >= deadline:
            raise JobFailed("max_runtime_sec has passed; committed shards are kept")
        nonlocal asked_at, told_at
        if time.monotonic() - asked_at >= _ASK_SEC:
            asked_at = told_at = time.monotonic()
            try:
                over = is_over()
            except Exception as error:
                # Whatever the database's driver raises: a failover must not cost every replica its engine.
                if time.monotonic() - told_at > _UNTOLD_SEC:
                    raise
                print(f"cannot ask whether the run goes on: {error}", file=sys.stderr, flush=True)
                return
            told_at = time.monotonic()
            if over:
                raise JobFailed("the run of this step has ended; committed shards are kept")
        if os.getppid() != parent:
            raise ParentGone(f"process {parent}, which started this step, is gone")

    return check


def run_replica(make_replica: Callable[[], Replica], *, check: Callable[[], None]) -> ReplicaResult:
    """Run a replica to its end, or until `check` or an interrupt raises in the calling thread.

    Args:
        make_replica: Called on the replica's event loop.
        check: Called a few times a second; what it raises ends the replica.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="replica", daemon=True)
    thread.start()

    async def work() -> ReplicaResult:
        return await make_replica().run()

    outcome = asyncio.run_coroutine_threadsafe(work(), loop)
    try:
        return _await(outcome, check)
    finally:
        _finish(loop, thread)


def _await(outcome: Future[ReplicaResult], check: Callable[[], None]) -> ReplicaResult:
    while True:
        check()
        try:
            return outcome.result(timeout=_LOOK_SEC)
        except TimeoutError:
            if outcome.done():
                raise


def _finish(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    """Cancel what still runs, let it stop its engine, and end the loop's thread."""
    ending = asyncio.run_coroutine_threadsafe(_end_tasks(), loop)
    try:
        ending.result()
    except BaseException:
        ending.result()  # a second interrupt does not leave an engine running
        raise
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def _end_tasks() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

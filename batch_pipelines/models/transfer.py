"""Many downloads at once: how many, how far they are, and when they stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

__all__ = ["Job", "Transfer", "TransferStopped"]

Job = Callable[[], None]
"""A part of a download; it calls `Transfer.add` for what it has fetched."""

_CHECK_SEC = 1.0
_REPORT_SEC = 15.0


class TransferStopped(Exception):
    """Told to a job that the download was given up."""


class Transfer:
    """The download of one checkpoint. Thread-safe."""

    def __init__(self, total: int, what: str, log: Callable[[str], None]) -> None:
        """Start counting.

        Args:
            total: Bytes to fetch.
            what: The checkpoint's address.
            log: Called with a line now and then, from the thread that runs the jobs.
        """
        self._total = total
        self._what = what
        self._log = log
        self._lock = threading.Lock()
        self._done = 0
        self._stopped = threading.Event()
        self._begun = self._reported = time.monotonic()
        self._checked = float("-inf")

    def add(self, count: int) -> None:
        """Count bytes that have arrived.

        Raises:
            TransferStopped: The download was given up; the caller must end.
        """
        with self._lock:
            self._done += count
        if self._stopped.is_set():
            raise TransferStopped

    def run(self, jobs: Iterator[Job], *, at_once: int, check: Callable[[], None]) -> None:
        """Run jobs in threads of their own, and return when all are done.

        The first error stops the others, and is raised when they have stopped.

        Args:
            jobs: Taken one by one as threads fall free.
            at_once: Most jobs at once.
            check: Called at the start and about once a second; what it raises ends the download like a job's
                error.
        """
        with ThreadPoolExecutor(at_once, thread_name_prefix="fetch") as pool:
            running: set[Future[None]] = set()
            try:
                for job in jobs:
                    running.add(pool.submit(job))
                    while len(running) >= at_once:
                        running = self._wait(running, check)
                while running:
                    running = self._wait(running, check)
            except BaseException:
                self._stopped.set()
                raise

    def _wait(self, running: set[Future[None]], check: Callable[[], None]) -> set[Future[None]]:
        done, rest = wait(running, timeout=_CHECK_SEC, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()
        now = time.monotonic()
        if now - self._checked >= _CHECK_SEC:
            self._checked = now
            check()
        if now - self._reported >= _REPORT_SEC:
            self._reported = now
            rate = self._done / (now - self._begun)
            progress = f"{self._done / 1e9:,.1f} of {self._total / 1e9:,.1f} GB, {rate / 1e6:,.0f} MB/s"
            self._log(f"{self._what}: {progress}")
        return rest

"""Waiting for a job, and showing how far it is: a live bar on a terminal, lines elsewhere."""

import sys
import time
from types import TracebackType
from typing import Protocol, Self

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from batch_pipelines.cli.render import counts_of
from batch_pipelines.control.errors import DagsterUnreachable
from batch_pipelines.control.jobs import Jobs, JobView

__all__ = ["WaitTimedOut", "display_for_stderr", "follow"]

_PATIENCE_SEC = 30.0
_LINE_SEC = 5.0


class WaitTimedOut(Exception):
    """The time to wait is over, and the job goes on."""

    def __init__(self, view: JobView) -> None:
        super().__init__(f"job {view.job.job_id} is still {view.job.status.value}")
        self.view = view


class Display(Protocol):
    """Shows a job while it runs."""

    def __enter__(self) -> Self:
        """Begin to show."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the last state on the screen."""

    def show(self, view: JobView) -> None:
        """Show the job as it is now."""


def follow(
    jobs: Jobs, job_id: str, display: Display, *, poll_sec: float, timeout: float | None = None
) -> JobView:
    """Show a job until it has ended.

    A webserver that goes away for a few seconds, as in a restart, is waited for.

    Args:
        jobs: The deployment's jobs.
        job_id: The job.
        display: Shows it; entered and left here.
        poll_sec: Seconds between two looks.
        timeout: Seconds to wait at most.

    Raises:
        WaitTimedOut: The job has not ended in time.
        NoSuchJob: There is none.
        DagsterUnreachable: Nobody has answered for half a minute, or not even once.
    """
    end = time.monotonic() + timeout if timeout is not None else float("inf")
    last: JobView | None = None
    heard = time.monotonic()
    with display:
        while True:
            try:
                last = jobs.view(job_id)
                heard = time.monotonic()
                display.show(last)
            except DagsterUnreachable:
                if last is None or time.monotonic() - heard > _PATIENCE_SEC:
                    raise
            if last.is_final:
                return last
            left = end - time.monotonic()
            if left <= 0:
                raise WaitTimedOut(last)
            time.sleep(min(poll_sec, left))


def display_for_stderr() -> Display:
    """The display that fits where stderr goes."""
    return Bar(Console(stderr=True)) if sys.stderr.isatty() else Lines()


class Bar:
    """A progress bar with the stage, items, failures, tokens a second and the time left."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._progress.add_task("", total=None, rate="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, view: JobView) -> None:
        """Redraw the bar."""
        done, total, _ = counts_of(view)
        self._progress.update(
            self._task,
            description=_stage(view),
            completed=done,
            total=total,
            rate=_extras(view),
            refresh=True,
        )


class Lines:
    """A line when the stage changes, and every few seconds while items are answered."""

    def __init__(self) -> None:
        self._last = ("", 0)
        self._next_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def show(self, view: JobView) -> None:
        """Print a line if there is something new."""
        done, total, _ = counts_of(view)
        state = (_stage(view), done)
        now = time.monotonic()
        if state == self._last or (state[0] == self._last[0] and now < self._next_at):
            return
        self._last, self._next_at = state, now + _LINE_SEC
        items = f"  {done}/{total} items" if total is not None else ""
        click.echo(f"{state[0]}{items}{'  ' + extras if (extras := _extras(view)) else ''}", err=True)


def _stage(view: JobView) -> str:
    return view.job.status.value if view.is_final else view.stage


def _extras(view: JobView) -> str:
    _, _, failed = counts_of(view)
    parts = [f"{failed} failed"] if failed else []
    if view.progress is not None and view.progress.tokens_per_second and not view.is_final:
        parts.append(f"{view.progress.tokens_per_second:.0f} tok/s")
    return "  ".join(parts)

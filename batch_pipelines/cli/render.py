"""Jobs as people read them."""

import sys
from collections.abc import Sequence
from urllib.parse import unquote

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from batch_pipelines.api.job import BatchCompletionsJob, JobStatus
from batch_pipelines.control.jobs import JobView

__all__ = ["counts_of", "describe_end", "print_job", "print_jobs", "readable"]

_COLOURS = {
    JobStatus.COMPLETED: "green",
    JobStatus.FAILED: "red",
    JobStatus.CANCELLED: "yellow",
    JobStatus.RUNNING: "cyan",
    JobStatus.QUEUED: "blue",
    JobStatus.UNKNOWN: "magenta",
}
_PIPED_WIDTH = 200


def print_job(view: JobView) -> None:
    """Print all that is known of a job, a fact a line."""
    job = view.job
    status = click.style(job.status.value, fg=_COLOURS[job.status])
    doing = "" if view.is_final or view.stage == job.status.value else f" ({view.stage})"
    facts = {
        "job": job.job_id,
        "status": status + doing,
        "model": job.engine_config.model,
        "input": job.input_data_path or "(with the request)",
        "output": job.output_data_path,
        "created": job.created_at,
        "completed": job.completed_at,
        "expires": None if view.is_final else job.expires_at,
        "priority": job.priority,
        **{name: value for name, value in (job.metadata or {}).items() if name != "output"},
    }
    shown = {name.replace("_", " "): value for name, value in facts.items() if value is not None}
    width = max(len(name) for name in shown)
    for name, value in shown.items():
        click.echo(f"{name:<{width}}  {value.replace(chr(10), chr(10) + ' ' * (width + 2))}")


def print_jobs(jobs: Sequence[BatchCompletionsJob]) -> None:
    """Print a table of jobs."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("JOB", "STATUS", "CREATED", "MODEL", "ITEMS", "FAILED", "OUTPUT"):
        table.add_column(column, no_wrap=True, justify="right" if column in ("ITEMS", "FAILED") else "left")
    for job in jobs:
        facts = job.metadata or {}
        table.add_row(
            job.job_id,
            Text(job.status.value, style=_COLOURS[job.status]),
            job.created_at,
            Text(job.engine_config.model),
            facts.get("items_total", ""),
            facts.get("items_failed", ""),
            Text(job.output_data_path),
        )
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else _PIPED_WIDTH, highlight=False).print(
        table
    )


def describe_end(view: JobView) -> str:
    """A sentence or two on how a job ended."""
    facts = view.job.metadata or {}
    name = f"job {view.job.job_id}"
    if view.job.status is JobStatus.COMPLETED:
        failed = f", {facts['items_failed']} of them failed" if facts["items_failed"] != "0" else ""
        errors = f"\nerrors  {readable(facts['errors'])}" if "errors" in facts else ""
        output = f"\noutput  {readable(facts['output'])}"
        warnings = (
            "".join(f"\nwarning {warning}" for warning in view.summary.warnings) if view.summary else ""
        )
        items = "1 item" if facts["items_total"] == "1" else f"{facts['items_total']} items"
        return f"{name} completed: {items}{failed}{output}{errors}{warnings}"
    reason = f": {facts['reason']}" if "reason" in facts else ""
    return f"{name} {'ended' if view.job.status is JobStatus.UNKNOWN else view.job.status.value}{reason}"


def readable(uri: str) -> str:
    """A file's address as people write it: a local one as a path."""
    return unquote(uri.removeprefix("file://")) if uri.startswith("file://") else uri


def counts_of(view: JobView) -> tuple[int, int | None, int]:
    """Items done, items in all (None while not known), and items failed."""
    if view.summary is not None:
        return view.summary.total, view.summary.total, view.summary.failed
    if view.progress is not None:
        return view.progress.done, view.progress.total, view.progress.failed
    return 0, None, 0

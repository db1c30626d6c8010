"""Commands on jobs: submit, status, wait, cancel, list."""

from pathlib import Path
from typing import BinaryIO

import click

from batch_pipelines.api.job import JobStatus
from batch_pipelines.cli.app import App, common_options, echo_json, note
from batch_pipelines.cli.exit_codes import ExitCode, exit_code_of
from batch_pipelines.cli.follow import WaitTimedOut, display_for_stderr, follow
from batch_pipelines.cli.render import describe_end, print_job, print_jobs
from batch_pipelines.control.jobs import JobView
from batch_pipelines.submission import submit as submit_request

__all__ = ["cancel", "list_jobs", "status", "submit", "wait"]

_pass_app = click.make_pass_decorator(App)


@click.command()
@click.argument("file", type=click.File("rb"))
@click.option(
    "--wait", "waits", is_flag=True, help="Wait for the job's end; the exit code tells how it ended."
)
@click.option("--fresh", is_flag=True, help="Take over nothing from an unfinished job with the same work.")
@common_options
@_pass_app
def submit(app: App, file: BinaryIO, waits: bool, fresh: bool) -> None:
    """Submit the request in FILE ('-' for stdin) and print the job's id.

    Relative local paths in the request start from the current folder.
    """
    job_id = submit_request(
        file.read(), settings=app.deployment, client=app.client, base_dir=Path.cwd(), fresh=fresh
    )
    if waits:
        if not app.as_json:
            click.echo(job_id)
        _wait_for(app, job_id, timeout=None)
        return
    if app.as_json:
        echo_json(app.jobs.view(job_id).job)
        return
    click.echo(job_id)
    note(f"submitted; `batch-pipelines wait {job_id}` shows how far it is")


@click.command()
@click.argument("job")
@common_options
@_pass_app
def status(app: App, job: str) -> None:
    """Print where JOB stands."""
    view = app.jobs.view(job)
    if app.as_json:
        echo_json(view.job)
    else:
        print_job(view)


@click.command()
@click.argument("job")
@click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Wait no longer than this.")
@common_options
@_pass_app
def wait(app: App, job: str, timeout: float | None) -> None:
    """Show how far JOB is until it ends; the exit code tells how it ended.

    An interrupt (Ctrl-C) ends the waiting, not the job.
    """
    _wait_for(app, job, timeout=timeout)


@click.command()
@click.argument("job")
@click.option("--wait", "waits", is_flag=True, help="Wait until all its processes have stopped.")
@common_options
@_pass_app
def cancel(app: App, job: str, waits: bool) -> None:
    """Cancel JOB. What it has committed is kept, and the same request submitted again starts from it.

    A queued job ends at once, a running one when its processes have stopped. A job that has ended
    before is left as it is.
    """
    ended = app.jobs.cancel(job)
    if ended is not None:
        note(f"job {job} had ended before: {ended.status.value}")
    elif waits:
        view = follow(app.jobs, job, display_for_stderr(), poll_sec=app.poll_sec)
        note(describe_end(view))
        if view.job.status is not JobStatus.CANCELLED:
            _end(app, view)
    else:
        note(f"job {job} is being cancelled")
    if app.as_json:
        echo_json(app.jobs.view(job).job)


@click.command("list")
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Most jobs to print."
)
@click.option("--status", "wanted", type=click.Choice([s.value for s in JobStatus]), help="Only these.")
@click.option(
    "--label", "labels", multiple=True, metavar="NAME=VALUE", help="Only with this label; repeatable."
)
@common_options
@_pass_app
def list_jobs(app: App, limit: int, wanted: str | None, labels: tuple[str, ...]) -> None:
    """List jobs, the newest first."""
    pairs = [label.partition("=") for label in labels]
    for name, separator, _ in pairs:
        if not name or not separator:
            raise click.BadParameter("write NAME=VALUE", param_hint="--label")
    jobs = app.jobs.recent(
        limit=limit,
        status=JobStatus(wanted) if wanted else None,
        labels={name: value for name, _, value in pairs},
    )
    if app.as_json:
        echo_json(jobs)
    elif jobs:
        print_jobs(jobs)
    else:
        note("no jobs")


def _wait_for(app: App, job_id: str, timeout: float | None) -> None:
    try:
        view = follow(app.jobs, job_id, display_for_stderr(), poll_sec=app.poll_sec, timeout=timeout)
    except KeyboardInterrupt:
        note(f"job {job_id} goes on; `batch-pipelines cancel {job_id}` would end it")
        raise
    except WaitTimedOut as timed_out:
        note(f"{timed_out}; it goes on")
        if app.as_json:
            echo_json(timed_out.view.job)
        click.get_current_context().exit(ExitCode.TIMED_OUT)
    note(describe_end(view))
    _end(app, view)


def _end(app: App, view: JobView) -> None:
    if app.as_json:
        echo_json(view.job)
    click.get_current_context().exit(exit_code_of(view.job.status))

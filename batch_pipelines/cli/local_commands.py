"""Commands that start a Dagster on this machine: demo and dev."""

import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import click

from batch_pipelines.api.parse import parse_request
from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.cli.app import App, common_options, echo_json, note
from batch_pipelines.cli.child import ChildEnded
from batch_pipelines.cli.exit_codes import exit_code_of
from batch_pipelines.cli.follow import display_for_stderr, follow
from batch_pipelines.cli.local_dagster import LocalDagster, choose_url, ended_by_sigterm
from batch_pipelines.cli.render import describe_end
from batch_pipelines.cli.results import describe_results
from batch_pipelines.control.dagster_client import DagsterClient
from batch_pipelines.control.errors import DagsterError
from batch_pipelines.control.jobs import Jobs, JobView
from batch_pipelines.models.smollm2 import NAME as SMOLLM2
from batch_pipelines.models.smollm2 import is_complete
from batch_pipelines.settings import Settings
from batch_pipelines.submission import submit

__all__ = ["demo", "dev"]

_WATCH_SEC = 0.5
_CANCEL_SEC = 30.0
_pass_app = click.make_pass_decorator(App)


@click.command()
@click.argument(
    "request", type=click.Path(exists=True, dir_okay=False, path_type=Path), default="examples/request.json"
)
@click.option("--keep", is_flag=True, help="Leave Dagster running, if this command starts it.")
@common_options
@_pass_app
def demo(app: App, request: Path, keep: bool) -> None:
    """Run the example batch from start to end, on a Dagster of its own if none answers.

    REQUEST is a request's file [default: examples/request.json].
    """
    data = request.read_bytes()
    wanted = parse_request(data)
    with ended_by_sigterm(), ExitStack() as stack:
        _ensure_model(app.settings, wanted)
        settings, local = app.settings, None
        if app.client.is_up() and app.client.not_ready() is None:
            note(f"using the Dagster at {app.client.url}")
            client = app.client
        else:
            _refuse_pods(settings)
            url = choose_url(settings, any_port=True)
            settings = settings.model_copy(update={"dagster_url": url})
            client = stack.enter_context(app.client_of(settings))
            local = stack.enter_context(LocalDagster(settings, url, outlives=keep))
            _start(local, client)
        view = _run_demo(app, settings, client, data)
        if local is not None and keep:
            local.leave_running()
            note(f"Dagster goes on at {local.url}; this ends it: kill {' '.join(map(str, local.pids))}")
    if app.as_json:
        echo_json(view.job)
    if local is not None and not keep:
        note("Dagster is stopped; `make dev` brings its UI back, with this run in it")
    click.get_current_context().exit(exit_code_of(view.job.status))


@click.command()
@common_options
@_pass_app
def dev(app: App) -> None:
    """Run Dagster on this machine, webserver and daemon, until interrupted (Ctrl-C)."""
    settings = app.settings
    if app.client.is_up():
        raise DagsterError(f"a Dagster answers at {app.client.url} already")
    _refuse_pods(settings)
    url = choose_url(settings, any_port=False)
    with ended_by_sigterm(), app.client_of(settings) as client, LocalDagster(settings, url) as local:
        _start(local, client)
        note("press Ctrl-C to stop it")
        if app.as_json:
            echo_json({"url": local.url, "logs": str(local.log_dir)})
        try:
            _watch(local)
        except KeyboardInterrupt:
            note("stopping Dagster")


def _refuse_pods(settings: Settings) -> None:
    if settings.executor == "kubernetes":
        raise click.UsageError(
            "BATCH_PIPELINES_EXECUTOR is kubernetes, but a Dagster on this machine has no pods; unset it, or "
            "name the cluster's Dagster in BATCH_PIPELINES_DAGSTER_URL"
        )


def _start(local: LocalDagster, client: DagsterClient) -> None:
    note(f"starting Dagster; its logs are in {local.log_dir}")
    started = time.monotonic()
    try:
        local.start(client, note)
    except ChildEnded as error:
        raise DagsterError(str(error)) from error
    note(f"Dagster is up at {local.url} after {time.monotonic() - started:.0f} s")


def _watch(local: LocalDagster) -> None:
    while True:
        try:
            local.check()
        except ChildEnded as error:
            raise DagsterError(str(error)) from error
        time.sleep(_WATCH_SEC)


def _run_demo(app: App, settings: Settings, client: DagsterClient, data: bytes) -> JobView:
    jobs = Jobs(client, settings)
    job_id = submit(data, settings=settings, client=client, base_dir=Path.cwd())
    try:
        note(f"job {job_id} is submitted: {client.run_url(jobs.view(job_id).run.run_id)}")
        view = follow(jobs, job_id, display_for_stderr(), poll_sec=app.poll_sec)
    except BaseException:
        _cancel(app, jobs, job_id)
        raise
    if view.summary is None:
        note(describe_end(view))
    elif app.as_json:
        note(describe_results(settings, view.summary))
    else:
        results = describe_results(settings, view.summary)
        click.echo(f"\n{results}\nrun     {client.run_url(view.run.run_id)}\n")
    return view


def _cancel(app: App, jobs: Jobs, job_id: str) -> None:
    """Cancel a job before its Dagster goes away, so that its records say so; give up after a while."""
    note(f"cancelling job {job_id}")
    try:
        if jobs.cancel(job_id) is None:
            follow(jobs, job_id, display_for_stderr(), poll_sec=app.poll_sec, timeout=_CANCEL_SEC)
    except Exception as error:  # what ended the demo is the error to report
        note(f"job {job_id} could not be cancelled: {error}")


def _ensure_model(settings: Settings, request: CreateBatchCompletionsV2Request) -> None:
    """Make the packaged model if the request wants it and it is not there."""
    wanted = settings.engine == "vllm" and request.engine_config.model == SMOLLM2
    if not wanted or request.engine_config.checkpoint_path or is_complete(settings.models / SMOLLM2):
        return
    note(f"converting {SMOLLM2}, once: about half a minute")
    command = [sys.executable, "-m", "batch_pipelines.models.smollm2", "--to", str(settings.models)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        last = (result.stderr.strip().splitlines() or ["no message"])[-1]
        raise DagsterError(f"{SMOLLM2} cannot be made: {last}")

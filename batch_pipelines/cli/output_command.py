"""The command that prints a job's output file."""

import itertools
import sys
from collections.abc import Iterator
from typing import BinaryIO

import click

from batch_pipelines.api.job import JobStatus
from batch_pipelines.cli.app import App, common_options, note
from batch_pipelines.cli.exit_codes import ExitCode
from batch_pipelines.storage.object_storage import ObjectStorage

__all__ = ["output", "records_of"]

_CHUNK = 2**20


@click.command()
@click.argument("job")
@click.option("--errors", is_flag=True, help="The errors file instead: a line for each item that failed.")
@click.option(
    "--head", type=click.IntRange(min=0), metavar="N", help="Only the first N records, a line each."
)
@common_options
@click.make_pass_decorator(App)
def output(app: App, job: str, errors: bool, head: int | None) -> None:
    """Print the output of JOB, once it has completed."""
    view = app.jobs.view(job)
    if view.job.status is not JobStatus.COMPLETED or view.summary is None:
        note(f"job {job} has no output: it is {view.job.status.value}")
        click.get_current_context().exit(ExitCode.FAILED)
    uri = view.summary.errors if errors else view.summary.output
    if uri is None:
        note(f"no item of job {job} failed")
        return
    stdout = sys.stdout.buffer
    with ObjectStorage(roots=[uri]).open_reader(uri) as source:
        if head is None:
            while chunk := source.read(_CHUNK):
                stdout.write(chunk)
        else:
            stdout.writelines(record + b"\n" for record in itertools.islice(records_of(source), head))
    stdout.flush()


def records_of(source: BinaryIO) -> Iterator[bytes]:
    """The records of an output or errors file; both have one a line, an array with brackets around them."""
    for line in source:
        record = line.strip().removesuffix(b",")
        if record not in (b"", b"[", b"]", b"[]"):
            yield record

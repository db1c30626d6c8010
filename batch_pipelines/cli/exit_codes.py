"""Exit codes of every command; scripts rely on them."""

from collections.abc import Mapping
from enum import IntEnum

from batch_pipelines.api.job import JobStatus

__all__ = ["EXIT_CODES_HELP", "ExitCode", "exit_code_of"]


class ExitCode(IntEnum):
    """What a command's end means."""

    OK = 0
    FAILED = 1
    INVALID = 2  # click's own code for wrong usage
    CANCELLED = 3
    UNREACHABLE = 4
    NO_SUCH_JOB = 5
    TIMED_OUT = 6
    INTERRUPTED = 130


EXIT_CODES_HELP = """\b
Exit codes:
  0    done; for a command that waits: the job completed
  1    the job failed, or something else went wrong
  2    wrong usage, or an invalid request
  3    the job was cancelled
  4    no Dagster answers
  5    there is no such job
  6    the time to wait is over; the job goes on
  130  interrupted; a job that was waited for goes on
"""

_OF_STATUS: Mapping[JobStatus, ExitCode] = {
    JobStatus.COMPLETED: ExitCode.OK,
    JobStatus.CANCELLED: ExitCode.CANCELLED,
    JobStatus.FAILED: ExitCode.FAILED,
    JobStatus.UNKNOWN: ExitCode.FAILED,
}


def exit_code_of(status: JobStatus) -> ExitCode:
    """The exit code of a command that waited for a job to end."""
    return _OF_STATUS[status]

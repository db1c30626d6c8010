"""What the pods of a replica with several nodes run: `python -m batch_pipelines.kubernetes.node COMMAND...`.

Kubernetes numbers the pods of an indexed Job. The first runs the command, which is Dagster's step, and then
says in the job's folder that it is over: a step that found nothing to do has never asked for the other pods.
Those are members of its engine, see `batch_pipelines.kubernetes.member`. A pod that is not numbered runs the
command as it is. Nothing here asks Kubernetes.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

__all__ = ["main"]

_TOLD = (signal.SIGTERM, signal.SIGINT)


def main(command: Sequence[str]) -> int:
    """Be the node that this pod is; returns an exit code.

    Args:
        command: Program and arguments of the first node.
    """
    index = os.environ.get("JOB_COMPLETION_INDEX")
    if index is None:
        os.execvp(command[0], list(command))  # noqa: S606 - the pod's own command, no shell
    if index == "0":
        code = _run(command)
        _say_over()
        return code
    # The first process of a container ignores SIGTERM until it says otherwise, and the imports take seconds.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    from batch_pipelines.kubernetes.member import run_member

    return run_member(int(index), os.environ)


def _run(command: Sequence[str]) -> int:
    """Run the command and hand on signals; returns its exit code, 128 + N if signal N ended it."""
    told: list[int] = []
    process: subprocess.Popen[bytes] | None = None

    def hand_on(number: int, _frame: object) -> None:
        told.append(number)
        if process is not None:
            process.send_signal(number)

    for each in _TOLD:
        signal.signal(each, hand_on)
    process = subprocess.Popen(command)
    for early in told:
        process.send_signal(early)
    code = process.wait()
    return code if code >= 0 else 128 - code


def _say_over() -> None:
    # Only now: while the step runs this process is to stay small.
    from batch_pipelines.jobs.folder import JobFolder
    from batch_pipelines.kubernetes.rendezvous import say_over
    from batch_pipelines.settings import Settings
    from batch_pipelines.storage.object_storage import ObjectStorage

    try:
        store = Settings().job_store
        folder = JobFolder(store, os.environ["BATCH_PIPELINES_JOB_ID"])
        say_over(ObjectStorage(roots=[store]), folder, os.environ["JOB_NAME"])
    except Exception as error:  # the step's exit code is what counts
        print(
            f"the other nodes cannot be told that this one has ended: {error!r}", file=sys.stderr, flush=True
        )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

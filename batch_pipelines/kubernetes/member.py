"""A pod of a replica with several nodes that is not the first: it runs its part of the first one's engine.

It finds the job by its pod's own labels, joins the first pod, fetches the model, and serves until that pod
says that all is done (exit code 0) or is gone (1). SIGTERM ends it at once (143).
"""

import signal
import sys
import time
from collections.abc import Callable, Mapping

from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.engines.gang_member import GangMember, LeaderGone, WorkDone
from batch_pipelines.hardware.plan import Hardware
from batch_pipelines.jobs.folder import JobFolder
from batch_pipelines.jobs.hardware import read_hardware
from batch_pipelines.jobs.manifest import Manifest, read_manifest
from batch_pipelines.kubernetes.rendezvous import GangNote, read_note
from batch_pipelines.settings import Settings
from batch_pipelines.stages.job import Job
from batch_pipelines.stages.validate import read_request
from batch_pipelines.storage.errors import StorageError
from batch_pipelines.storage.object_storage import ObjectStorage
from resources.deployment import engines_of
from resources.engines import Engines

__all__ = ["run_member"]

_LOOK_SEC = 2.0
_FAREWELL_SEC = 120.0  # for the first pod to end its step, once it knows that this one can do nothing


class _Told(BaseException):
    """SIGTERM: whoever runs this pod wants it gone."""


def run_member(rank: int, environment: Mapping[str, str]) -> int:
    """Be a member; returns an exit code.

    Args:
        rank: Of this node, from 1.
        environment: Of this process.
    """

    def log(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def told(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise _Told("its pod was told to end (SIGTERM)")

    signal.signal(signal.SIGTERM, told)
    settings = Settings()
    store = ObjectStorage(roots=[settings.job_store])
    job = Job(JobFolder(settings.job_store, environment["BATCH_PIPELINES_JOB_ID"]), store=store, data=store)
    try:
        member, note = _join(
            job, rank, environment["JOB_NAME"], within_sec=settings.pod_start_timeout_sec, log=log
        )
        with member:
            _work(member, note, job, engines_of(settings), rank, environment["POD_IP"], log)
    except WorkDone as done:
        log(f"{done}; this node ends")
        return 0
    except LeaderGone as gone:
        log(f"{gone}; this node ends")
        return 1
    except _Told as why:
        log(f"this node ends: {why}")
        return 128 + signal.SIGTERM
    return 1


def _join(
    job: Job, rank: int, pod_group: str, *, within_sec: float, log: Callable[[str], None]
) -> tuple[GangMember, GangNote]:
    """Find the first pod and join it, which may be a while in coming."""
    log(f"node {rank} looks for the first one in {job.folder.gang(pod_group)}")
    until = time.monotonic() + within_sec
    while True:
        why = "it has left no address"
        try:
            note = read_note(job.store, job.folder, pod_group)
            if note is not None and note.over:
                raise WorkDone("the first node has ended")
            if note is not None:
                return GangMember.join(note.rendezvous, rank, log=log), note
        except (StorageError, LeaderGone) as error:
            why = str(error)
        if time.monotonic() >= until:
            raise LeaderGone(f"the first node was not found within {within_sec:g} s: {why}")
        time.sleep(_LOOK_SEC)


def _work(
    member: GangMember,
    note: GangNote,
    job: Job,
    engines: Engines,
    rank: int,
    address: str,
    log: Callable[[str], None],
) -> None:
    """Serve; whatever hinders it is the first node's to report."""
    try:
        request, manifest, hardware = _plan(job, note.run_id)
        with engines.member(
            request,
            manifest.needs,
            hardware,
            rank=rank,
            address=address,
            check=member.check,
            log=log,
        ) as start_part:
            member.serve(start_part, note.address)
    except (WorkDone, LeaderGone):
        raise
    except _Told as why:
        member.fail(str(why))
        raise
    except Exception as error:
        log(f"this node can do nothing: {error}")
        member.fail(str(error))
        member.wait_for_the_end(_FAREWELL_SEC)


def _plan(job: Job, run_id: str) -> tuple[CreateBatchCompletionsV2Request, Manifest, Hardware]:
    manifest = read_manifest(job.store, job.folder)
    hardware = read_hardware(job.store, job.folder, run_id)
    if manifest is None or hardware is None:
        raise ValueError(f"the job's folder has no plan of run {run_id}")
    return read_request(job), manifest, hardware

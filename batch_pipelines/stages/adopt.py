"""Taking over committed work of an earlier job that asked for the same and did not finish.

A job that was cancelled or failed leaves its committed parts behind. A later job with the same
fingerprint (same items, same model and settings, same engine) copies them instead of computing
them again. A completed job's work is never taken over: whoever asks twice, to sample twice, gets two
answers.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from batch_pipelines.jobs.folder import InvalidJobId, JobFolder, unfinished_marker, unfinished_markers
from batch_pipelines.jobs.manifest import Manifest
from batch_pipelines.jobs.parts import committed_shards
from batch_pipelines.stages.job import Job

__all__ = ["adopt_parts", "mark_unfinished"]

_COPIES_IN_FLIGHT = 8


def mark_unfinished(job: Job, manifest: Manifest) -> None:
    """Let later jobs find this one's parts, until its merge has published."""
    job.store.create(unfinished_marker(job.folder.store, manifest.fingerprint, job.folder.job_id), b"")


def adopt_parts(job: Job, manifest: Manifest, *, is_abandoned: Callable[[str], bool]) -> int:
    """Copy the committed parts of abandoned jobs with this job's fingerprint.

    Args:
        job: The job that takes over.
        manifest: Its plan.
        is_abandoned: Whether a job, by id, has ended without completing.

    Returns:
        How many parts were copied.
    """
    mine = committed_shards(job.store, job.folder, manifest.fingerprint)
    adopted = 0
    with ThreadPoolExecutor(_COPIES_IN_FLIGHT, thread_name_prefix="part-copy") as pool:
        for other in _same_work(job, manifest):
            if not is_abandoned(other.job_id):
                continue
            theirs = committed_shards(job.store, other, manifest.fingerprint) - mine

            def copy(shard: int, other: JobFolder = other) -> bool:
                source = other.part(manifest.fingerprint, shard)
                return job.store.copy(source, job.folder.part(manifest.fingerprint, shard))

            adopted += sum(pool.map(copy, sorted(theirs)))
            mine |= theirs
    return adopted


def _same_work(job: Job, manifest: Manifest) -> list[JobFolder]:
    """Folders of other unfinished jobs with the same fingerprint, the newest first."""
    folders = []
    for info in job.store.list(unfinished_markers(job.folder.store, manifest.fingerprint)):
        try:
            folder = JobFolder(job.folder.store, info.uri.rsplit("/", 1)[1])
        except InvalidJobId:
            continue  # not one of ours
        if folder.job_id != job.folder.job_id:
            folders.append(folder)
    return sorted(folders, key=lambda folder: folder.job_id, reverse=True)

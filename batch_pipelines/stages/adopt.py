"""Taking over committed work of an earlier job that asked for the same and did not finish.

A job that was cancelled or failed leaves its committed parts behind. A later job with the same
fingerprint (same items, same model and settings, same engine) copies them instead of computing
them again. Work that was published is used up, by whichever job: whoever asks twice, to sample
twice, gets two answers.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import orjson

from batch_pipelines.jobs.folder import InvalidJobId, JobFolder, unfinished_marker, unfinished_markers
from batch_pipelines.jobs.manifest import Manifest, ShardEntry
from batch_pipelines.jobs.parts import PartDamaged, commit_part, committed_shards, read_part
from batch_pipelines.stages.job import Job
from batch_pipelines.storage.errors import ObjectNotFound

__all__ = ["adopt_parts", "forget_unfinished", "mark_unfinished", "taken_from"]

_COPIES_IN_FLIGHT = 8


def mark_unfinished(job: Job, manifest: Manifest) -> None:
    """Let later jobs find this one's parts, until its merge has published."""
    job.store.create(_marker(job, manifest), b"[]")


def forget_unfinished(job: Job, manifest: Manifest) -> None:
    """Once this job has published: its parts, and those it took over, are used up."""
    for job_id in taken_from(job, manifest):
        job.store.delete(unfinished_marker(job.folder.store, manifest.fingerprint, job_id))
    job.store.delete(_marker(job, manifest))


def adopt_parts(job: Job, manifest: Manifest, *, is_abandoned: Callable[[str], bool]) -> int:
    """Copy the committed parts of abandoned jobs with this job's fingerprint.

    Args:
        job: The job that takes over, marked unfinished.
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
            shards = [shard for shard in manifest.shards if shard.id in theirs]
            copied = sum(pool.map(partial(_copy, job, manifest, other), shards))
            if copied:
                others = sorted({*taken_from(job, manifest), other.job_id})
                job.store.write(_marker(job, manifest), orjson.dumps(others))
            adopted += copied
            mine |= theirs
    return adopted


def _copy(job: Job, manifest: Manifest, other: JobFolder, shard: ShardEntry) -> bool:
    """Copy a part that is sound; a damaged one is left to be computed again."""
    try:
        part = read_part(job.store, other, manifest, shard)
    except (PartDamaged, ObjectNotFound):
        return False
    return commit_part(
        job.store, job.folder, manifest.fingerprint, part.records.split(b"\n")[:-1], part.footer
    )


def _marker(job: Job, manifest: Manifest) -> str:
    return unfinished_marker(job.folder.store, manifest.fingerprint, job.folder.job_id)


def taken_from(job: Job, manifest: Manifest) -> list[str]:
    """Ids of the jobs whose parts this one took over, until it has published."""
    try:
        jobs: list[str] = orjson.loads(job.store.read(_marker(job, manifest)))
    except ObjectNotFound:
        return []
    return jobs


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

"""What became of a job's steps and pods, where it explains something: kept for people, and for retries.

Dagster's record of a lost pod says that its Kubernetes job failed, not why. Finding that out is in
`batch_pipelines.kubernetes.pod_problems`; nothing here asks a cluster.
"""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel

from batch_pipelines.jobs.folder import JobFolder
from batch_pipelines.storage.object_storage import ObjectStorage

__all__ = ["Kind", "PodNote", "read_notes", "write_note"]

Kind = Literal["waiting", "disruption", "failure", "given up"]


class PodNote(BaseModel):
    """Why a pod ended or does not start, or why an attempt of a step failed.

    Attributes:
        step: Key of the step within the asset, such as `run_inference[replica_00]`; empty for the run's own.
        pod: Its name, or that of the attempt.
        reason: In Kubernetes' words, such as `OOMKilled` or `Unschedulable`; of an attempt, its error's name.
        message: A sentence for the user.
        kind: `waiting`: it may have started since; `disruption`: the cluster took its place away; `failure`:
            it counts as a try; `given up`: the step is not to be tried again.
        at: When it was seen.
    """

    step: str
    pod: str
    reason: str
    message: str
    kind: Kind = "failure"
    at: datetime


def write_note(store: ObjectStorage, folder: JobFolder, run_id: str, note: PodNote) -> None:
    """Keep a note; a later one on the same pod and reason takes its place."""
    store.write(folder.pod_note(run_id, f"{note.pod}.{note.reason}"), note.model_dump_json().encode())


def read_notes(
    store: ObjectStorage, folder: JobFolder, run_id: str, step: str | None = None
) -> list[PodNote]:
    """The notes on a run's pods, the oldest first.

    Args:
        store: Where the job store is.
        folder: The job's.
        run_id: The run.
        step: Only notes on this step.
    """
    infos = store.list(folder.pod_notes(run_id))
    notes = [PodNote.model_validate_json(store.read(info.uri)) for info in infos]
    return sorted((note for note in notes if step in (None, note.step)), key=lambda note: note.at)

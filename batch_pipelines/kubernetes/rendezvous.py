"""Where the pods of a replica find the first of them: an object in the job's folder, by their Job's name.

The pods have no rights to ask Kubernetes for each other, and a headless service would be one more thing to
make and to clear away for each replica. What is said once they have met is `batch_pipelines.engines`' matter.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from batch_pipelines.engines.gang import GangPlace, Rendezvous
from batch_pipelines.jobs.folder import JobFolder
from batch_pipelines.storage.errors import ObjectNotFound
from batch_pipelines.storage.object_storage import ObjectStorage

__all__ = ["GangNote", "gang_place", "read_note", "say_over"]


class GangNote(BaseModel):
    """What the first pod of a replica leaves for the others.

    Attributes:
        run_id: The run it belongs to.
        address: Its IP address.
        port: Where it listens for them.
        token: What they must know.
        over: Whether it has ended; nothing else is given then.
    """

    model_config = ConfigDict(frozen=True)

    run_id: str = ""
    address: str = ""
    port: int = 0
    token: str = ""
    over: bool = False

    @property
    def rendezvous(self) -> Rendezvous:
        """Where to find it."""
        return Rendezvous(self.address, self.port, self.token)


@dataclass(frozen=True, slots=True)
class _Announcement:
    store: ObjectStorage
    uri: str
    run_id: str

    def __call__(self, rendezvous: Rendezvous) -> None:
        note = GangNote(
            run_id=self.run_id, address=rendezvous.address, port=rendezvous.port, token=rendezvous.token
        )
        self.store.write(self.uri, note.model_dump_json().encode())


def gang_place(
    store: ObjectStorage, folder: JobFolder, run_id: str, environment: Mapping[str, str]
) -> GangPlace | None:
    """Where other nodes of an engine find this pod; None if it has no others.

    Args:
        store: Where the job store is.
        folder: The job's.
        run_id: The run.
        environment: Of this process; Kubernetes numbers the pods of a replica that has several.
    """
    if "JOB_COMPLETION_INDEX" not in environment:
        return None
    uri = folder.gang(environment["JOB_NAME"])
    return GangPlace(environment["POD_IP"], _Announcement(store, uri, run_id))


def read_note(store: ObjectStorage, folder: JobFolder, pod_group: str) -> GangNote | None:
    """What the first pod has left; None if nothing yet.

    Args:
        store: Where the job store is.
        folder: The job's.
        pod_group: Name of the pods' Job.

    Raises:
        StorageError: The job store cannot be read.
    """
    try:
        return GangNote.model_validate_json(store.read(folder.gang(pod_group)))
    except ObjectNotFound:
        return None


def say_over(store: ObjectStorage, folder: JobFolder, pod_group: str) -> None:
    """Say that the first pod has ended; its token is gone from the store then.

    Raises:
        StorageError: The job store cannot be written.
    """
    store.write(folder.gang(pod_group), GangNote(over=True).model_dump_json().encode())

"""What the replicas of a job run on, decided once a run and kept in the job's folder.

Pods and engines must agree on it: the pod has so many GPUs, the engine spreads the model over just as many.
Deciding it is in `batch_pipelines.hardware`.
"""

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from batch_pipelines.hardware.plan import Hardware
from batch_pipelines.jobs.folder import JobFolder
from batch_pipelines.storage.errors import ObjectNotFound
from batch_pipelines.storage.object_storage import ObjectStorage

__all__ = ["read_hardware", "write_hardware"]


@dataclass(frozen=True)
class _Decided:
    run_id: str
    hardware: Hardware


_FILE = TypeAdapter(_Decided)


def write_hardware(store: ObjectStorage, folder: JobFolder, run_id: str, hardware: Hardware) -> None:
    """Keep what a run's replicas run on; another run of the job decides anew."""
    store.write(folder.hardware, _FILE.dump_json(_Decided(run_id, hardware)))


def read_hardware(store: ObjectStorage, folder: JobFolder, run_id: str) -> Hardware | None:
    """What this run's replicas run on; None for whatever machine they are on."""
    try:
        decided = _FILE.validate_json(store.read(folder.hardware))
    except ObjectNotFound:
        return None
    return decided.hardware if decided.run_id == run_id else None

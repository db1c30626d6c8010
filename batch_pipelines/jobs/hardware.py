"""What the replicas of a run are to run on, decided once and kept in the job's folder.

Pods and engines must agree on it: the pod has so many GPUs, the engine spreads the model over just as many.
Deciding it is in `batch_pipelines.hardware`.
"""

from pydantic import TypeAdapter

from batch_pipelines.hardware.plan import Hardware
from batch_pipelines.jobs.folder import JobFolder
from batch_pipelines.storage.errors import ObjectNotFound
from batch_pipelines.storage.object_storage import ObjectStorage

__all__ = ["read_hardware", "write_hardware"]

_FILE = TypeAdapter(Hardware)


def write_hardware(store: ObjectStorage, folder: JobFolder, run_id: str, hardware: Hardware) -> None:
    """Keep what a run's replicas run on; another run of the job decides for itself."""
    store.write(folder.hardware(run_id), _FILE.dump_json(hardware))


def read_hardware(store: ObjectStorage, folder: JobFolder, run_id: str) -> Hardware | None:
    """What this run's replicas run on; None for whatever machine they are on."""
    try:
        return _FILE.validate_json(store.read(folder.hardware(run_id)))
    except ObjectNotFound:
        return None

"""The hardware of one replica, once it is decided."""

from dataclasses import dataclass

__all__ = ["Hardware"]


@dataclass(frozen=True, slots=True)
class Hardware:
    """What one replica runs on. All but the parallel sizes are of each of its nodes.

    Attributes:
        cpus: Thousandths of a CPU.
        gpus: GPUs; 0 if it runs on CPUs.
        memory: Bytes.
        storage: Bytes of local disk.
        gpu_type: Kind of GPU; None without GPUs.
        nodes_per_worker: Nodes.
        tensor_parallel_size: GPUs that each layer is spread over.
        pipeline_parallel_size: Groups of them that each hold a range of the layers.
        reasons: Where each value comes from, for people.
    """

    cpus: int
    gpus: int
    memory: int
    storage: int
    gpu_type: str | None
    nodes_per_worker: int
    tensor_parallel_size: int
    pipeline_parallel_size: int
    reasons: tuple[str, ...]

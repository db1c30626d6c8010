"""vLLM over several nodes: how its parts find each other, and the part of a node that is not the first.

The arguments are vLLM's own (`--nnodes` and its like), with its `mp` executor: each node starts processes for
its own GPUs. Facts of vLLM 0.32 that this relies on, or makes up for:

* the first part listens at the master port on all its addresses, every part at ports the system chooses, on
  `VLLM_HOST_IP` (queues) and the address of the host's name (Gloo, NCCL). None asks who connects: the network
  must keep pods of other jobs out;
* the first part notices that another is lost after 300 s while it has work, and never without; the others
  never notice that the first is lost: hence a gang's own connections;
* a part takes 15 s to end on SIGTERM, so it is killed earlier.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from batch_pipelines.engines.environment import engine_environment
from batch_pipelines.engines.gang import Start
from batch_pipelines.engines.private_folder import private_folder
from batch_pipelines.engines.process import EngineProcess
from batch_pipelines.engines.protocol import EngineSpec
from batch_pipelines.engines.vllm_args import engine_args

__all__ = ["VLLM_HEADLESS_COMMAND", "node_arguments", "node_environment", "start_vllm_part"]

VLLM_HEADLESS_COMMAND = (sys.executable, "-P", str(Path(__file__).with_name("vllm_headless.py")))


def node_arguments(start: Start, rank: int) -> list[str]:
    """The arguments that make a server one of several nodes."""
    return [
        f"--nnodes={start.nodes}",
        f"--node-rank={rank}",
        f"--master-addr={start.address}",
        f"--master-port={start.port}",
        "--distributed-executor-backend=mp",
    ]


def node_environment(address: str) -> dict[str, str]:
    """The variables for it.

    Args:
        address: This node's IP address, which the other nodes reach.
    """
    return {"VLLM_HOST_IP": address}


def start_vllm_part(
    spec: EngineSpec,
    start: Start,
    rank: int,
    address: str,
    *,
    command: Sequence[str] = VLLM_HEADLESS_COMMAND,
    grace_sec: float = 3.0,
) -> EngineProcess:
    """Start the part of a node that is not the first.

    Args:
        spec: As the first node has it.
        start: Which start of the engine this is.
        rank: Of this node, from 1.
        address: This node's IP address.
        command: Program that starts it; the arguments are appended to it.
        grace_sec: Seconds it has to end by itself before it is killed.

    Raises:
        OSError: It cannot be started.
        ValueError: An argument cannot be passed on.
    """
    folder = private_folder()
    try:
        translated = engine_args(spec.model_config, spec.defaults, spec.needs)
        return EngineProcess(
            [
                *command,
                "--headless",
                f"--model={spec.model}",
                f"--served-model-name={spec.served_model_name}",
                *translated.args,
                *node_arguments(start, rank),
            ],
            environment=engine_environment(
                os.environ,
                {"VLLM_RPC_BASE_PATH": str(folder), **spec.environment, **node_environment(address)},
            ),
            directory=folder,
            log=spec.log,
            grace_sec=grace_sec,
        )
    except (OSError, ValueError):
        shutil.rmtree(folder, ignore_errors=True)
        raise

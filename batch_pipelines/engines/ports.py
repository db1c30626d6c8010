"""A port for an engine's first node, that its other nodes can be told before the engine listens there."""

import random
import socket

from batch_pipelines.engines.protocol import EngineStartError

__all__ = ["free_port"]

_PORTS = range(20_000, 32_000)  # below those that systems give to outgoing connections
_TRIES = 50


def free_port(address: str) -> int:
    """A port that nobody listens at now; the engine takes it some seconds later, on all addresses.

    Args:
        address: This node's IP address, by which the kind of addresses is told.

    Raises:
        EngineStartError: None was found.
    """
    family, everywhere = (socket.AF_INET6, "::") if ":" in address else (socket.AF_INET, "0.0.0.0")  # noqa: S104
    for _ in range(_TRIES):
        port = random.choice(_PORTS)  # noqa: S311 - spreads the choices, hides nothing
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((everywhere, port))
            except OSError:
                continue
            return port
    raise EngineStartError(f"no free port from {_PORTS.start} to {_PORTS.stop - 1} was found on this node")

"""One engine over several nodes, a *gang*: what its two sides and those who set them up agree on.

The node of rank 0, the leader, feeds the engine; the others, its members, run their part of it, no more. Each
member keeps a connection to the leader, and its loss ends the engine on both sides: vLLM by itself notices a
lost node only after minutes, and that the first one is lost, never. A lost node is not replaced: all of the
gang ends, and whoever started it may start another.

    gang_channel   messages over a connection
    gang_door      where the leader listens
    gang_leader    the leader's side
    gang_member    a member's side
    gang_engine    an `Engine` that starts and ends with its members

Nothing here knows of Kubernetes, or where the leader's address is left for members to find.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from batch_pipelines.engines.protocol import EngineStartError

__all__ = ["GangPlace", "NodeLost", "Rendezvous", "Start"]


class NodeLost(EngineStartError):
    """A node of the engine is gone for good, or never came; with other nodes another attempt may succeed."""


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Where members find their leader.

    Attributes:
        address: The leader's IP address.
        port: Where it listens.
        token: What both sides must know; never sent over the connection.
    """

    address: str
    port: int
    token: str


@dataclass(frozen=True, slots=True)
class GangPlace:
    """What a leader needs to know of where it runs.

    Attributes:
        address: This node's IP address, which the other nodes reach.
        announce: Leaves the rendezvous where the members look for it.
    """

    address: str
    announce: Callable[[Rendezvous], None]


@dataclass(frozen=True, slots=True)
class Start:
    """A start of the engine, as its nodes are told of it.

    Attributes:
        incarnation: Counts the starts, from 1.
        nodes: How many nodes there are.
        address: The leader's IP address.
        port: Where the leader's part of the engine will listen for the other parts.
    """

    incarnation: int
    nodes: int
    address: str
    port: int

"""How a deployment's engines, whichever they are, lead the other nodes of an engine."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from batch_pipelines.engines.gang import GangPlace
from batch_pipelines.engines.gang_leader import GangLeader
from batch_pipelines.engines.protocol import EngineStartError
from batch_pipelines.hardware.plan import Hardware

__all__ = ["led_gang", "watched"]


@contextmanager
def led_gang(
    place: GangPlace | None, hardware: Hardware | None, log: Callable[[str], None]
) -> Iterator[GangLeader | None]:
    """The leader's side of a gang, if the hardware is of several nodes.

    Args:
        place: Where the other nodes find this one.
        hardware: Of the engine.
        log: Called with who comes and goes.

    Raises:
        EngineStartError: Nobody has started other nodes.
    """
    if hardware is None or hardware.nodes_per_worker == 1:
        yield None
        return
    if place is None:
        raise EngineStartError(
            f"nodes_per_worker is {hardware.nodes_per_worker}, but this step has one node: only the executor "
            "kubernetes gives it more"
        )
    with ExitStack() as stack:
        try:
            leader = stack.enter_context(GangLeader(place, hardware.nodes_per_worker, log=log))
        except OSError as error:
            raise EngineStartError(
                f"nothing can listen at {place.address}, this node's address: {error}"
            ) from error
        yield leader


def watched(leader: GangLeader | None, check: Callable[[], None]) -> Callable[[], None]:
    """A check that fails also when another node is lost."""

    def both() -> None:
        check()
        if leader is not None:
            leader.check()

    return both

"""What checks an item against the model before any engine starts; the checks themselves are elsewhere."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol, Self

from batch_pipelines.api.items import ItemKind
from batch_pipelines.api.output import ItemError

__all__ = ["NoPreflight", "Preflight"]


class Preflight(Protocol):
    """Checks the items of one job, one after the other."""

    @property
    def notes(self) -> Mapping[str, int]:
        """What items set without effect on this model, and how many did."""
        ...

    def check(self, kind: ItemKind, item: Any, size: int) -> ItemError | None:
        """Why the engine would refuse an item, or could be harmed by it; none if it can have it.

        Args:
            kind: What the item is.
            item: Its parsed JSON, which keeps the contract; for V1, one prompt.
            size: Bytes of its JSON.
        """
        ...

    def close(self) -> None:
        """End whatever the checks run on; it may be called again."""
        ...

    def __enter__(self) -> Self:
        """Return itself."""
        ...

    def __exit__(self, *exc_info: object) -> None:
        """Close it."""
        ...


class NoPreflight:
    """For an engine without a model: everything passes."""

    notes: Mapping[str, int] = MappingProxyType({})

    def check(self, kind: ItemKind, item: Any, size: int) -> ItemError | None:
        """See `Preflight.check`."""
        del kind, item, size
        return None

    def close(self) -> None:
        """Nothing to end."""

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Nothing to end."""

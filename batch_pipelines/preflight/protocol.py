"""What checks an item against the model before any engine starts; the checks themselves are elsewhere."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol, Self

from batch_pipelines.api.items import ItemKind
from batch_pipelines.api.output import ItemError

__all__ = ["ModelUnfit", "NoPreflight", "Preflight"]


class ModelUnfit(Exception):
    """The model cannot answer items of this kind at all, so that the job as a whole is at fault."""


class Preflight(Protocol):
    """Checks the items of one job, one after the other."""

    @property
    def notes(self) -> Mapping[str, int]:
        """What items set without effect on this model, and how many did."""
        ...

    @property
    def structured_backend(self) -> str | None:
        """The library for forms of text that the engine must be started with; none if any will do."""
        ...

    def check_v1_header(self, header: Mapping[str, Any]) -> ItemError | None:
        """Why the engine would refuse every prompt under a header of V1 content; none if it would not.

        To be called before the first prompt.
        """
        ...

    def check(self, kind: ItemKind, item: Any, size: int) -> ItemError | None:
        """Why the engine would refuse an item, or could be harmed by it; none if it can have it.

        Args:
            kind: What the item is.
            item: Its parsed JSON, which keeps the contract; for V1, one prompt.
            size: Bytes of its JSON.

        Raises:
            ModelUnfit: No item of the kind can be answered.
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
    structured_backend: str | None = None

    def check_v1_header(self, header: Mapping[str, Any]) -> ItemError | None:
        """See `Preflight.check_v1_header`."""
        del header
        return None

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

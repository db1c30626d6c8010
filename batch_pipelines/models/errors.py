"""What goes wrong between a model's name and its weights.

```
ValueError                the request, or the deployment's catalogue, must change
├── CatalogInvalid        a catalogue file makes no sense
├── ModelNotFound         there is no such model where it is looked for
└── CheckpointRefused     there is one, and it is not loaded: pickled, incomplete, not for this engine
Exception
└── ModelUnavailable      the network, the store or the disk failed; another attempt may succeed
```

No text made here holds a token, a query string or a signed link.
"""

from __future__ import annotations

__all__ = ["CatalogInvalid", "CheckpointRefused", "ModelNotFound", "ModelUnavailable"]


class CatalogInvalid(ValueError):
    """A model catalogue cannot be used; the text names the file and the entry."""


class ModelNotFound(ValueError):
    """A model is not where the request or the catalogue says, or its name cannot be one."""


class CheckpointRefused(ValueError):
    """A checkpoint is there and is not loaded; the text says why and what to do."""


class ModelUnavailable(Exception):
    """A checkpoint could not be had now: network, store, hub or disk. The text says what to do."""

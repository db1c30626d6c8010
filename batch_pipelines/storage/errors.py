"""What storage raises, and how a client library's error becomes one of ours.

```
ValueError
└── InvalidPath        the text is not an address of an object
Exception
└── StorageError       the store refused or failed; the text names the object and the reason
    ├── ObjectNotFound
    └── PathNotAllowed outside the allowed roots
```

No text made here holds a query string (it may be a signature) or a user name and password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

from batch_pipelines.storage.locations import redact

_REASON_LIMIT = 300
_SERVER_REPLY = re.compile(r"<Code>(.*?)</Code>.*?<Message>(.*?)</Message>", re.DOTALL)
_QUERY_OR_USER = re.compile(r"(?<=://)[^/\s@]+@|(?<=\S)\?[^\s\"'<>,)]+")
_METADATA_SERVICE = "169.254.169.254"  # the last place a client looks for credentials
_NO_CREDENTIALS = "no credentials: none in the environment, and no cloud's metadata service gave any"
_REFUSED = "the store refused the credentials this process has"


class StorageError(Exception):
    """A store could not do what was asked."""


class ObjectNotFound(StorageError):
    """There is no object at the address."""


class PathNotAllowed(StorageError):
    """The address is outside the roots this deployment may touch."""


def scrub(text: str) -> str:
    """Remove the query string and user part of every URL within a text."""
    return _QUERY_OR_USER.sub("", text)


def _reason(error: BaseException) -> str:
    text = scrub(str(error))
    if _METADATA_SERVICE in text:
        return _NO_CREDENTIALS
    if reply := _SERVER_REPLY.search(text):
        return f"{reply[1]}: {reply[2]}"[:_REASON_LIMIT]
    return text.partition("\n")[0][:_REASON_LIMIT] or type(error).__name__


@contextmanager
def translated(action: str, uri: str) -> Iterator[None]:
    """Turn a client library's error into a `StorageError`.

    Args:
        action: what was tried, to follow 'cannot' ('read').
        uri: what it was tried on; redacted here.

    Raises:
        ObjectNotFound: there is no such object.
        StorageError: anything else the store or the network did.
    """
    try:
        yield
    except FileNotFoundError as error:
        # A store that explains itself may mean that the bucket is missing, also in a write.
        reason = _reason(error) if _SERVER_REPLY.search(str(error)) else "there is no such object"
        raise ObjectNotFound(f"cannot {action} {redact(uri)}: {reason}") from _clean(error)
    except (PermissionDeniedError, UnauthenticatedError) as error:
        message = f"cannot {action} {redact(uri)}: {_REFUSED} ({_reason(error)})"
        raise StorageError(message) from _clean(error)
    except (BaseError, OSError, ValueError) as error:
        raise StorageError(f"cannot {action} {redact(uri)}: {_reason(error)}") from _clean(error)


def _clean(error: Exception) -> Exception:
    """The cause is printed in tracebacks too, so it must not carry a signature either."""
    if (text := scrub(str(error))) != str(error):
        error.args = (text,)
    return error

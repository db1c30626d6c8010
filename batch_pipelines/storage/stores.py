"""The client of each store, built once per bucket from the standard environment.

S3 takes AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL(_S3), or
the web identity, container or instance credentials of the pod; shared credential files (`~/.aws`) are not
read. GCS takes GOOGLE_APPLICATION_CREDENTIALS or the pod's identity, Azure AZURE_STORAGE_ACCOUNT_NAME with a
key or the pod's identity.

A request that fails with a 5xx or loses its connection is tried up to 10 times within 3 minutes with growing
pauses (the client's defaults). One consequence: a create whose first reply was lost is answered 'exists' by
its own retry.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from obstore.store import AzureStore, GCSStore, LocalStore, MemoryStore, S3Store

from batch_pipelines.storage.errors import translated

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore

    from batch_pipelines.storage.locations import Location

# The limit is for one request. Streams move in requests of 8 to 16 MiB; the other methods use one each.
_CLIENT: Final[ClientConfig] = {"connect_timeout": "10s", "timeout": "180s"}
_MEMORY: Final = (
    MemoryStore()
)  # one per process, so that every ObjectStorage sees the same 'memory://' objects


class Stores:
    """Gives the client and the key a location is reached by. Thread-safe."""

    def __init__(self) -> None:
        """Connect to nothing yet: a bucket's client is built when it is first needed."""
        self._lock = threading.Lock()
        self._local = LocalStore()
        self._clients: dict[tuple[str, str], ObjectStore] = {}

    def resolve(self, location: Location) -> tuple[ObjectStore, str]:
        """The client, and the key within it.

        Raises:
            StorageError: the environment does not say enough to connect.
        """
        if location.scheme == "file":
            return self._local, location.key
        if location.scheme == "memory":
            return _MEMORY, f"{location.container}/{location.key}".rstrip("/")
        where = (location.scheme, location.container)
        with self._lock:
            if where not in self._clients:
                with translated("connect to", "://".join(where)):
                    self._clients[where] = _connect(*where)
            return self._clients[where], location.key


def _connect(scheme: str, container: str) -> ObjectStore:
    if scheme == "s3":
        # Plain HTTP is for an endpoint the deployment itself names (MinIO in the cluster, a test server).
        options: ClientConfig = {**_CLIENT, "allow_http": True}
        return S3Store(container, client_options=options, config={"copy_if_not_exists": "multipart"})
    if scheme == "gs":
        return GCSStore(container, client_options=_CLIENT)
    return AzureStore(container, client_options=_CLIENT)

"""From a path and a verb to what is done with objects."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.kubernetes.double.conditions import set_condition
from tests.kubernetes.double.deletion import DeleteOptions, delete
from tests.kubernetes.double.discovery import discover
from tests.kubernetes.double.errors import ApiFailure
from tests.kubernetes.double.logs import read_log
from tests.kubernetes.double.patches import apply_patch
from tests.kubernetes.double.record import Record
from tests.kubernetes.double.requests import Answer, Request, is_true
from tests.kubernetes.double.resources import BY_PLURAL, ResourceKind
from tests.kubernetes.double.store import Store
from tests.kubernetes.double.watch import list_objects, matcher, watch_objects
from tests.kubernetes.double.writes import Writer

__all__ = ["Api"]

_PATH = re.compile(
    r"/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+/[^/]+))(?:/namespaces/(?P<namespace>[^/]+)(?=/[^/]))?"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<part>[a-z]+))?"
)


@dataclass(frozen=True, slots=True)
class _Target:
    kind: ResourceKind
    namespace: str
    name: str | None
    part: str | None


class Api:
    """The API server without its sockets."""

    def __init__(
        self,
        store: Store,
        record: Record,
        *,
        folder_of: Callable[[str], Path],
        ended: Callable[[], bool],
    ) -> None:
        """Serve a store.

        Args:
            store: The objects.
            record: Gets every manifest.
            folder_of: Folder of a pod's logs by its uid.
            ended: Whether streams must end.
        """
        self._store = store
        self._writer = Writer(store, record)
        self._folder_of = folder_of
        self._ended = ended

    def answer(self, request: Request) -> Answer:
        """Do what a request asks.

        Raises:
            ApiFailure: It cannot be done.
        """
        if request.path in ("/healthz", "/readyz", "/livez"):
            return Answer(text=b"ok")
        about = discover(request.path)
        if about is not None:
            return Answer(content=about)
        target = _target(request.path)
        if target.part:
            return self._answer_part(request, target, target.part)
        match request.method, target.name:
            case "GET", None if is_true(request.query.get("watch")):
                lines = watch_objects(
                    self._store, target.kind.plural, target.namespace, request.query, self._ended
                )
                return Answer(content="watch", stream=lines)
            case "GET", None:
                return Answer(
                    content=list_objects(self._store, target.kind.plural, target.namespace, request.query)
                )
            case "POST", None:
                dry_run = bool(request.query.get("dryRun"))
                made = self._writer.create(target.kind, target.namespace, request.body, dry_run=dry_run)
                return Answer(201, content=made)
            case "DELETE", None:
                return self._delete_collection(request, target)
            case "GET", str(name):
                return Answer(content=self._store.get(target.kind.plural, target.namespace, name))
            case "DELETE", str(name):
                options = DeleteOptions.parse(request.query, request.body)
                gone = delete(self._store, target.kind.plural, target.namespace, name, options)
                return Answer(content=gone)
            case (("PUT" | "PATCH"), str(name)):
                return self._write(request, target, name)
        raise ApiFailure(
            405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
        )

    def _answer_part(self, request: Request, target: _Target, part: str) -> Answer:
        name = target.name or ""
        match target.kind.plural, part, request.method:
            case "pods", "log", "GET":
                pod = self._store.get("pods", target.namespace, name)
                folder = self._folder_of(pod["metadata"]["uid"])
                return read_log(self._store, pod, folder, request.query, self._ended)
            case "pods", "eviction", "POST":
                return self._evict(request, target.namespace, name)
            case plural, "status", "GET" if target.kind.status:
                return Answer(content=self._store.get(plural, target.namespace, name))
            case _, "status", "PUT" | "PATCH" if target.kind.status:
                return self._write(request, target, name)
        raise ApiFailure(404, "NotFound", "the server could not find the requested resource")

    def _write(self, request: Request, target: _Target, name: str) -> Answer:
        kind, namespace = target.kind, target.namespace
        if request.method == "PUT":
            return Answer(content=self._writer.replace(kind, namespace, name, request.body, target.part))
        with self._store.lock:
            before = self._store.get(kind.plural, namespace, name)
            after = apply_patch(before, request.body, request.content_type)
            return Answer(content=self._writer.change(kind, namespace, name, after, target.part))

    def _delete_collection(self, request: Request, target: _Target) -> Answer:
        options = DeleteOptions.parse(request.query, request.body)
        plural = target.kind.plural
        with self._store.lock:
            found = self._store.list(plural, target.namespace, matcher(plural, request.query))
            for obj in found:
                metadata = obj["metadata"]
                delete(self._store, plural, metadata.get("namespace", ""), metadata["name"], options)
        content = {
            "kind": f"{target.kind.kind}List",
            "apiVersion": target.kind.api_version,
            "metadata": {"resourceVersion": str(self._store.version)},
            "items": found,
        }
        return Answer(content=content)

    def _evict(self, request: Request, namespace: str, name: str) -> Answer:
        options = DeleteOptions.parse({}, (request.body or {}).get("deleteOptions"))
        with self._store.lock:
            with self._store.edit("pods", namespace, name) as pod:
                why = "Eviction API: evicting"
                set_condition(pod, "DisruptionTarget", "True", "EvictionByEvictionAPI", why)
            delete(self._store, "pods", namespace, name, options)
        return Answer(
            201,
            content={"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201},
        )


def _target(path: str) -> _Target:
    found = _PATH.fullmatch(path)
    kind = BY_PLURAL.get(found["plural"]) if found else None
    if found is None or kind is None or kind.api_version != (found["core"] or found["group"]):
        raise ApiFailure(404, "NotFound", "the server could not find the requested resource")
    return _Target(kind, found["namespace"] or "", found["name"], found["part"])

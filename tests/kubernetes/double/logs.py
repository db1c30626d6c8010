"""Container logs as the API gives them: tail, since, timestamps, previous, follow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.kubernetes.double.clock import from_now
from tests.kubernetes.double.errors import bad_request
from tests.kubernetes.double.pod_host import log_file
from tests.kubernetes.double.pod_status import container_status
from tests.kubernetes.double.requests import Answer, is_true
from tests.kubernetes.double.resources import JsonObject
from tests.kubernetes.double.store import Store

__all__ = ["read_log"]

_POLL_SEC = 0.05


def read_log(
    store: Store, pod: JsonObject, folder: Path, query: Mapping[str, str], ended: Callable[[], bool]
) -> Answer:
    """Answer a request for a log.

    Raises:
        ApiFailure: 400, there is no such container or it has not started.
    """
    container = _container(pod, query.get("container"))
    restarts = _restarts(pod, container)
    if is_true(query.get("previous")):
        if not restarts:
            raise bad_request(f'previous terminated container "{container}" in pod "{_name(pod)}" not found')
        restarts -= 1
    path = log_file(folder, container, restarts)
    if not path.exists():
        state = _state(pod, container).get("waiting") or {"reason": "ContainerCreating"}
        raise bad_request(
            f'container "{container}" in pod "{_name(pod)}" is waiting to start: {state["reason"]}'
        )
    kept, position = _kept_lines(path, query)
    timestamps = is_true(query.get("timestamps"))
    text = b"".join(_shown(line, timestamps) for line in kept)
    if not is_true(query.get("follow")):
        limit = int(query.get("limitBytes") or 0)
        return Answer(text=text[:limit] if limit else text)

    def over() -> bool:
        if ended():
            return True
        now = store.find("pods", pod["metadata"]["namespace"], _name(pod))
        if now is None or now["metadata"]["uid"] != pod["metadata"]["uid"]:
            return True
        return "running" not in _state(now, container) or _restarts(now, container) != restarts

    return Answer(stream=_follow(path, text, position, timestamps, over))


def _follow(
    path: Path, first: bytes, position: int, timestamps: bool, over: Callable[[], bool]
) -> Iterator[bytes]:
    yield first
    rest = b""
    with path.open("rb") as file:
        file.seek(position)
        while True:
            last = over()
            rest += file.read()
            complete, newline, rest = rest.rpartition(b"\n")
            if newline:
                yield (
                    b"".join(_shown(line, timestamps) for line in complete.splitlines(keepends=True)) + b"\n"
                )
            if last:
                return
            if not newline:
                yield b""
                time.sleep(_POLL_SEC)


def _kept_lines(path: Path, query: Mapping[str, str]) -> tuple[list[bytes], int]:
    content = path.read_bytes()
    content = content[: content.rfind(b"\n") + 1]
    lines = content.splitlines(keepends=True)
    if query.get("sinceSeconds"):
        since = from_now(-int(query["sinceSeconds"]))[:19].encode()
        lines = [line for line in lines if line[:19] >= since]
    if query.get("tailLines"):
        wanted = int(query["tailLines"])
        lines = lines[-wanted:] if wanted else []
    return lines, len(content)


def _shown(line: bytes, timestamps: bool) -> bytes:
    return line if timestamps else line.partition(b" ")[2]


def _container(pod: JsonObject, asked: str | None) -> str:
    names = [one["name"] for one in pod["spec"]["containers"]]
    inits = [one["name"] for one in pod["spec"].get("initContainers") or []]
    if asked:
        if asked not in [*names, *inits]:
            raise bad_request(f"container {asked} is not valid for pod {_name(pod)}")
        return asked
    if len(names) > 1:
        raise bad_request(
            f"a container name must be specified for pod {_name(pod)}, choose one of: [{' '.join(names)}]"
        )
    return str(names[0])


def _state(pod: JsonObject, container: str) -> JsonObject:
    try:
        state: JsonObject = container_status(pod, container)["state"]
    except KeyError:
        return {}
    return state


def _restarts(pod: JsonObject, container: str) -> int:
    try:
        return int(container_status(pod, container)["restartCount"])
    except KeyError:
        return 0


def _name(pod: JsonObject) -> str:
    return str(pod["metadata"]["name"])

"""A model hub on loopback: the few routes a download takes, with the faults a real one can have."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NEXT_COMMIT = "fedcba9876543210fedcba9876543210fedcba98"


class StandInHub:
    """One repository, `owner/tiny`, with a branch `main`.

    Attributes:
        files: What it holds; large files are those whose names end in `.safetensors`.
        commit: What `main` is.
        plain: Whether it lists names only, as some mirrors do.
        token: The one token that may read it; None lets everybody.
        gated: Whether it says that its terms were not accepted.
        failing: Status it answers everything with; 0 is none.
        damaged: By file, how often it is still sent with another first byte.
        cut: By file, how often it is still sent without its last byte.
        requests: What was asked, `METHOD path`.
        authorizations: As whom, by the header's text; None is nobody.
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = dict(files)
        self.commit = COMMIT
        self.plain = False
        self.token: str | None = None
        self.gated = False
        self.failing = 0
        self.damaged: dict[str, int] = {}
        self.cut: dict[str, int] = {}
        self.requests: list[str] = []
        self.authorizations: set[str | None] = set()
        self.endpoint = ""

    def fetched(self) -> list[str]:
        """The files whose bytes were asked for."""
        return sorted(
            line.rpartition(f"/{COMMIT}/")[2]
            for line in self.requests
            if line.startswith("GET /") and f"/resolve/{COMMIT}/" in line
        )


@contextmanager
def stand_in_hub(files: Mapping[str, bytes]) -> Iterator[StandInHub]:
    """Serve until the end of the block."""
    hub = StandInHub(files)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    server.daemon_threads = True
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(hub: StandInHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def log_message(self, *_: object) -> None:
            pass

        def _answer(self, *, body: bool) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.requests.append(f"{self.command} {path}")
            hub.authorizations.add(self.headers["authorization"])
            if hub.failing:
                self._send(hub.failing, b"{}", {}, body)
            elif hub.token is not None and self.headers["authorization"] != f"Bearer {hub.token}":
                self._send(401, b"{}", {"x-error-code": "RepoNotFound"}, body)
            elif hub.gated:
                self._send(403, b"{}", {"x-error-code": "GatedRepo"}, body)
            elif path == "/api/models/owner/tiny":
                self._describe(hub.commit, body)
            elif path.startswith("/api/models/owner/tiny/revision/"):
                revision = path.rpartition("/")[2]
                known = {"main": hub.commit, COMMIT: COMMIT, NEXT_COMMIT: NEXT_COMMIT}
                if revision in known:
                    self._describe(known[revision], body)
                else:
                    self._send(404, b"{}", {"x-error-code": "RevisionNotFound"}, body)
            elif path.startswith("/owner/tiny/resolve/"):
                self._file(path.removeprefix("/owner/tiny/resolve/"), body)
            else:
                self._send(404, b"{}", {"x-error-code": "RepoNotFound"}, body)

        def _describe(self, commit: str, body: bool) -> None:
            files = _siblings(hub.files, hub.plain) if "blobs=" in self.path else []
            answer = {"id": "owner/tiny", "sha": commit, "siblings": files}
            self._send(200, json.dumps(answer).encode(), {}, body)

        def _file(self, place: str, body: bool) -> None:
            commit, _, name = place.partition("/")
            data = hub.files[name]
            headers = {"etag": f'"{_hash(name, data)}"', "x-repo-commit": commit}
            if body and hub.damaged.get(name, 0):
                hub.damaged[name] -= 1
                data = bytes([data[0] ^ 1]) + data[1:]
            cut = body and bool(hub.cut.get(name, 0))
            if cut:
                hub.cut[name] -= 1
                data = data[:-1]
            self._send(200, data, headers, body)

        def _send(self, status: int, data: bytes, headers: dict[str, str], body: bool) -> None:
            self.send_response(status)
            for key, value in {**headers, "content-length": str(len(data))}.items():
                self.send_header(key, value)
            self.end_headers()
            if body:
                self.wfile.write(data)

    return Handler


def _siblings(files: Mapping[str, bytes], plain: bool) -> list[dict[str, object]]:
    if plain:
        return [{"rfilename": name} for name in files]
    found: list[dict[str, object]] = []
    for name, data in files.items():
        entry: dict[str, object] = {"rfilename": name, "size": len(data), "blobId": _git(data)}
        if name.endswith(".safetensors"):
            pointer = b"version https://git-lfs.github.com/spec/v1"
            entry["blobId"] = _git(pointer)
            sha256 = hashlib.sha256(data).hexdigest()
            entry["lfs"] = {"sha256": sha256, "size": len(data), "pointerSize": len(pointer)}
        found.append(entry)
    return found


def _hash(name: str, data: bytes) -> str:
    return hashlib.sha256(data).hexdigest() if name.endswith(".safetensors") else _git(data)


def _git(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()

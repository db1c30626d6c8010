"""Reading from a web server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from batch_pipelines.storage.object_storage import ObjectNotFound, ObjectStorage, StorageError

BODY = b'{"a":1}\n' * 100_000


class Handler(BaseHTTPRequestHandler):
    """A file behind a signature, a redirect, and a body that breaks off."""

    paths: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.paths.append(self.path)
        path = self.path.partition("?")[0]
        if path == "/in/moved":
            self.send_response(302)
            self.send_header("location", "/secret")
            self.send_header("content-length", "0")
            self.end_headers()
        elif path == "/in/short":
            self.send_response(200)
            self.send_header("content-length", "100")
            self.end_headers()
            self.wfile.write(b"short")
        elif self.path == "/in/file?sig=a%2Fb%3D":
            self.send_response(200)
            self.send_header("content-length", str(len(BODY)))
            self.send_header("etag", '"1"')
            self.send_header("last-modified", "Mon, 30 Nov 2026 08:00:00 GMT")
            self.end_headers()
            self.wfile.write(BODY)
        else:
            self.send_error(403 if path == "/in/file" else 404)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    Handler.paths.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_signed_link_is_read_with_its_query(host: str) -> None:
    storage = ObjectStorage(roots=[f"{host}/in"])
    uri = f"{host}/in/file?sig=a%2Fb%3D"
    info = storage.head(uri)
    assert (info.size, info.etag, info.last_modified.isoformat()) == (
        len(BODY),
        '"1"',
        "2026-11-30T08:00:00+00:00",
    )
    assert storage.read(uri) == BODY
    with storage.open_reader(uri) as reader:
        assert reader.readline() == b'{"a":1}\n'
        assert len(reader.read()) == len(BODY) - 8


def test_refusal_of_the_server_does_not_repeat_the_signature(host: str) -> None:
    storage = ObjectStorage(roots=[f"{host}/in"])
    with pytest.raises(StorageError, match=r"/in/file: the server says 403") as caught:
        storage.read(f"{host}/in/file?sig=hunter2")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ObjectNotFound):
        storage.open_reader(f"{host}/in/nowhere")


def test_redirect_is_not_followed(host: str) -> None:
    storage = ObjectStorage(roots=[f"{host}/in"])
    with pytest.raises(StorageError, match="redirects"):
        storage.read(f"{host}/in/moved")
    assert Handler.paths == ["/in/moved"]


def test_body_that_breaks_off_is_an_error(host: str) -> None:
    storage = ObjectStorage(roots=[f"{host}/in"])
    with pytest.raises(StorageError, match="/in/short"):
        storage.read(f"{host}/in/short")


def test_web_addresses_are_read_only(host: str) -> None:
    storage = ObjectStorage(roots=[f"{host}/in"])
    with pytest.raises(StorageError, match="only be read"):
        storage.write(f"{host}/in/x", b"")
    with pytest.raises(StorageError, match="no folders"):
        storage.list(f"{host}/in")


@pytest.mark.usefixtures("host")
def test_server_that_is_not_there_is_an_error() -> None:
    gone = "http://127.0.0.1:9"
    with pytest.raises(StorageError, match="ConnectError"):
        ObjectStorage(roots=[gone]).read(f"{gone}/x")

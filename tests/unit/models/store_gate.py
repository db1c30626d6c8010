"""A proxy on loopback before an S3 server: counts what is read, and can come between."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

_NOT_PASSED_ON = ("content-length", "transfer-encoding", "connection", "date", "server")


@dataclass
class StoreGate:
    """What passes the proxy.

    Attributes:
        endpoint: The proxy's address.
        reads: Of objects: the name and the range of each request.
        listings: How many listings were asked for.
        before: Called with an object's name before its request goes on, from the request's own thread.
        change: Given an object's name and bytes, what is sent in their place.
    """

    endpoint: str = ""
    reads: list[tuple[str, str | None]] = field(default_factory=list)
    listings: int = 0
    before: Callable[[str], None] = lambda _: None
    change: Callable[[str, bytes], bytes] = lambda _, data: data

    def names(self) -> list[str]:
        """The objects of which something was read, once for each request."""
        return sorted(name for name, _ in self.reads)


@contextmanager
def gate_before(target: str) -> Iterator[StoreGate]:
    """Pass requests on to `target` until the end of the block."""
    gate = StoreGate()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _proxy(gate, urlsplit(target).netloc))
    server.daemon_threads = True
    gate.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield gate
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _proxy(gate: StoreGate, target: str) -> type[BaseHTTPRequestHandler]:
    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            name = unquote(urlsplit(self.path).path).partition("/models/tiny/")[2]
            if "list-type=2" in self.path:
                gate.listings += 1
            else:
                gate.reads.append((name, self.headers["range"]))
                gate.before(name)
            connection = http.client.HTTPConnection(target)
            connection.request("GET", self.path, headers=dict(self.headers))
            response = connection.getresponse()
            data = response.read()
            connection.close()
            if name and response.status in (200, 206):
                data = gate.change(name, data)
            self.send_response(response.status)
            for key, value in response.getheaders():
                if key.lower() not in _NOT_PASSED_ON:
                    self.send_header(key, value)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    return Proxy

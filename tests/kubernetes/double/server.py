"""The sockets of the API server: TLS on loopback, a token, faults that strike requests."""

from __future__ import annotations

import contextlib
import hmac
import json
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.kubernetes.cluster import ApiError, DroppedConnection, LostAnswer, SlowApi
from tests.kubernetes.double.api import Api
from tests.kubernetes.double.errors import ApiFailure
from tests.kubernetes.double.faults import Faults
from tests.kubernetes.double.record import Record
from tests.kubernetes.double.requests import Answer, Request

__all__ = ["ApiServer"]

_ERRORS = {429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}


class _NoAnswer(Exception):
    """A fault wants the connection to end here."""


class ApiServer(ThreadingHTTPServer):
    """Serves an Api in threads of its own."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, api: Api, record: Record, faults: Faults, *, tls: ssl.SSLContext, token: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.api = api
        self.record = record
        self.faults = faults
        self.token = token
        self._tls = tls
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()
        self._thread = threading.Thread(
            target=self.serve_forever, args=(0.05,), name="api server", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"https://127.0.0.1:{self.server_address[1]}"

    def get_request(self) -> tuple[socket.socket, Any]:
        """Take a connection; its handshake is left to its own thread."""
        connection, address = super().get_request()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wrapped = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        with self._open_lock:
            self._open.add(wrapped)
        return wrapped, address

    def shutdown_request(self, request: Any) -> None:
        """A connection is over."""
        with self._open_lock:
            self._open.discard(request)
        with contextlib.suppress(OSError):
            super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away, or does not trust the certificate, is no news."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def stop(self) -> None:
        """Serve no more; all connections end."""
        self.shutdown()
        self._thread.join()
        with self._open_lock:
            left = list(self._open)
        for connection in left:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and self._open:
            time.sleep(0.01)
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ApiServer
    timeout = 600

    def setup(self) -> None:
        """Shake hands, in this connection's own thread."""
        self.request.settimeout(self.timeout)
        self.request.do_handshake()
        super().setup()

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self._handle()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _handle(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        url = urlsplit(self.path)
        request = Request(
            method=self.command,
            path=url.path,
            query={name: values[-1] for name, values in parse_qs(url.query).items()},
            content_type=self.headers.get("Content-Type") or "",
            raw=self.rfile.read(length) if length else b"",
        )
        try:
            self._send(self._answer(request))
        except ApiFailure as failure:
            self._send(Answer(failure.code, content=failure.status(), headers=failure.headers))
        except _NoAnswer:
            self.close_connection = True

    def _answer(self, request: Request) -> Answer:
        given = self.headers.get("Authorization") or ""
        if not hmac.compare_digest(given, f"Bearer {self.server.token}"):
            raise ApiFailure(401, "Unauthorized", "Unauthorized")
        self.server.record.request(request.method, request.path, request.query)
        lost = False
        body = request.raw.decode(errors="replace")
        for fault in self.server.faults.for_request(request.method, request.path, body):
            match fault:
                case SlowApi(delay_sec=delay):
                    time.sleep(delay)
                case ApiError(status=status, retry_after_sec=retry_after):
                    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
                    reason = _ERRORS.get(status, "InternalError")
                    raise ApiFailure(status, reason, "injected fault", headers=headers)
                case DroppedConnection():
                    raise _NoAnswer
                case LostAnswer():
                    lost = True
        try:
            answer = self.server.api.answer(request)
        except ApiFailure:
            if lost:
                raise _NoAnswer from None
            raise
        if lost:
            raise _NoAnswer
        return answer

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.code)
        self.send_header("Content-Type", answer.content_type)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.stream is not None:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self._send_stream(answer.stream)
            return
        body = answer.text if answer.text is not None else json.dumps(answer.content).encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_stream(self, pieces: Iterator[bytes]) -> None:
        for piece in pieces:
            if piece:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            elif self._client_is_gone():
                self.close_connection = True
                return
        self.wfile.write(b"0\r\n\r\n")

    def _client_is_gone(self) -> bool:
        assert isinstance(self.connection, ssl.SSLSocket)
        self.connection.setblocking(False)
        try:
            return self.connection.recv(1) == b""
        except (ssl.SSLWantReadError, BlockingIOError):
            return False
        except OSError:
            return True
        finally:
            with contextlib.suppress(OSError):
                self.connection.settimeout(self.timeout)

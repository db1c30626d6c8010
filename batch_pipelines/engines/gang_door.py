"""Where a gang's leader listens: lets in whoever knows the token, each in a thread of its own."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from functools import partial

from batch_pipelines.engines.gang_channel import Channel, ChannelClosed, admit

__all__ = ["Door"]

_STRANGERS = 32


class Door:
    """Listens at an address until it is closed."""

    def __init__(
        self,
        address: str,
        token: str,
        *,
        welcome: Callable[[int, Channel, str], None],
        log: Callable[[str], None],
        beat_sec: float,
        silence_sec: float,
    ) -> None:
        """Listen.

        Args:
            address: This node's IP address; nothing listens on others.
            token: What a member must know.
            welcome: Called in a thread for each that does, with its rank, the channel to it and its address.
                The channel is closed when this returns.
            log: Called with who is refused.
            beat_sec: Of each channel.
            silence_sec: Of each channel.

        Raises:
            OSError: This node does not have that address.
        """
        self._token = token
        self._welcome = welcome
        self._log = log
        self._channel = partial(Channel, beat_sec=beat_sec, silence_sec=silence_sec)
        self._lock = threading.Lock()
        self._closed = False
        self._strangers: set[Channel] = set()
        self._threads: list[threading.Thread] = []
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.create_server((address, 0), family=family)
        self.port: int = self._socket.getsockname()[1]
        self._spawn(self._admit_all, "door")

    def close(self) -> None:
        """Listen no more, and wait for the threads of those let in; they must be about to end."""
        with self._lock:
            self._closed = True
            strangers = list(self._strangers)
        for channel in strangers:
            channel.close()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        while self._threads:
            self._threads.pop().join()
        self._socket.close()

    def _admit_all(self) -> None:
        while True:
            try:
                connection, (host, *_) = self._socket.accept()
            except OSError:
                return  # closed
            channel = self._channel(connection)
            with self._lock:
                admitted = not self._closed and len(self._strangers) < _STRANGERS
                if admitted:
                    self._strangers.add(channel)
            if admitted:
                self._spawn(partial(self._meet, channel, host), "member")
            else:
                channel.close()

    def _meet(self, channel: Channel, host: str) -> None:
        try:
            rank = admit(channel, self._token)
        except ChannelClosed as closed:
            self._log(f"a connection from {host} was refused: it {closed}")
            return
        else:
            with self._lock:
                self._strangers.discard(channel)
            self._welcome(rank, channel, host)
        finally:
            with self._lock:
                self._strangers.discard(channel)
            channel.close()

    def _spawn(self, target: Callable[[], None], role: str) -> None:
        thread = threading.Thread(target=target, name=f"gang-{role}", daemon=True)
        self._threads.append(thread)
        thread.start()

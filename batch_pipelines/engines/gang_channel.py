"""Messages between a gang's nodes: JSON, a line each, over a TCP connection that both sides keep alive.

Both sides prove that they know the rendezvous's token before anything else is said, by a keyed hash of what
the other side made up: neither sends it, so whoever listens at an address that a leader had before learns
nothing. What is said is not secret. What messages mean is the matter of `gang_leader` and `gang_member`.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import select
import socket
import threading
import time
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

__all__ = ["Channel", "ChannelClosed", "Message", "admit", "introduce"]

_MAX_LINE = 256 * 1024
_READ_BYTES = 16 * 1024
_MAX_NODES = 1024
_HANDSHAKE_SEC = 10.0


class ChannelClosed(Exception):
    """The connection is of no use any more; the message says why, with the other side as its subject."""


class Message(BaseModel):
    """Anything one side tells the other.

    Attributes:
        kind: `who`, `hello`, `welcome` and `refused` are the handshake. A leader says `start`, `stop` and
            `done`, a member `ready`, `started`, `ended`, `stopped` and `failed`; both say `beat`.
        nonce: Made up for this connection.
        proof: That the sender knows the token.
        rank: Of the member.
        incarnation: Which start of the engine is meant.
        nodes: How many nodes the engine has.
        port: Of the leader's part of the engine.
        code: A process's exit code.
        lines: The last lines it printed.
        why: A sentence for people.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    kind: Literal[
        "who", "hello", "welcome", "refused",
        "ready", "start", "started", "ended", "failed", "stop", "stopped", "done", "beat",
    ]  # fmt: skip
    nonce: str = ""
    proof: str = ""
    rank: int = Field(default=0, ge=0, lt=_MAX_NODES)
    incarnation: int = Field(default=0, ge=0)
    nodes: int = Field(default=0, ge=0, le=_MAX_NODES)
    port: int = Field(default=0, ge=0, lt=65536)
    code: int | None = None
    lines: list[str] = []
    why: str = ""


class Channel:
    """A connection to one other node. Any thread may send; one receives."""

    def __init__(
        self, connection: socket.socket, *, beat_sec: float = 2.0, silence_sec: float = 15.0
    ) -> None:
        """Take over a connection.

        Args:
            connection: Closed by `close`.
            beat_sec: Seconds between two signs of life, once `keep_alive` is called.
            silence_sec: Seconds without one from the other side after which it counts as gone.
        """
        self.silence_sec = silence_sec
        self._connection = connection
        self._beat_sec = beat_sec
        self._pending = b""
        self._heard_at = time.monotonic()
        self._sending = threading.Lock()
        self._closing = threading.Event()
        self._beats: threading.Thread | None = None
        connection.settimeout(silence_sec)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def keep_alive(self) -> None:
        """Give signs of life from now on, whatever this side is busy with."""
        self._beats = threading.Thread(target=self._beat, name="gang-beat", daemon=True)
        self._beats.start()

    def send(self, message: Message) -> None:
        """Send a message.

        Raises:
            ChannelClosed: It cannot be sent.
        """
        line = message.model_dump_json(exclude_defaults=True).encode() + b"\n"
        try:
            with self._sending:
                self._connection.sendall(line)
        except TimeoutError as error:
            raise ChannelClosed("takes nothing any more") from error
        except OSError as error:
            raise ChannelClosed(f"closed the connection ({error.strerror or error})") from error

    def receive(self, within_sec: float) -> Message | None:
        """The next message but signs of life; None if none comes in time.

        Raises:
            ChannelClosed: There will be none: the connection is lost or silent, or makes no sense.
        """
        until = time.monotonic() + within_sec
        while True:
            message = self._next_line()
            if message is not None and message.kind != "beat":
                return message
            if message is None and not self._read_more(until):
                return None

    def close(self) -> None:
        """Close the connection."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)  # wakes whoever sends or receives
        if self._beats is not None and self._beats is not threading.current_thread():
            self._beats.join()
        self._connection.close()

    def _next_line(self) -> Message | None:
        line, found, rest = self._pending.partition(b"\n")
        if not found:
            if len(self._pending) > _MAX_LINE:
                raise ChannelClosed("sent a message that is too long")
            return None
        self._pending = rest
        try:
            return Message.model_validate_json(line)
        except ValidationError as error:
            raise ChannelClosed("sent what is no message") from error

    def _read_more(self, until: float) -> bool:
        """Wait for bytes; False when there are none by `until`."""
        now = time.monotonic()
        silent_at = self._heard_at + self.silence_sec
        try:
            # select() takes no descriptors beyond 1,023, and an engine's requests may have those.
            poll = select.poll()
            poll.register(self._connection, select.POLLIN)
            if not poll.poll(max(0.0, min(until, silent_at) - now) * 1000):
                if time.monotonic() >= silent_at:
                    raise ChannelClosed(f"gave no sign of life for {self.silence_sec:g} s")
                return False
            data = self._connection.recv(_READ_BYTES)
        except (OSError, ValueError) as error:  # ValueError: closed by another thread
            raise ChannelClosed(f"closed the connection ({error})") from error
        if not data:
            raise ChannelClosed("closed the connection")
        self._pending += data
        self._heard_at = time.monotonic()
        return True

    def _beat(self) -> None:
        while not self._closing.wait(self._beat_sec):
            try:
                self.send(Message(kind="beat"))
            except ChannelClosed:
                return  # the side that receives finds out why


def admit(channel: Channel, token: str) -> int:
    """The leader's side of the handshake.

    Returns:
        The rank of the member.

    Raises:
        ChannelClosed: It does not know the token, or says nothing that makes sense.
    """
    ours = secrets.token_hex(16)
    channel.send(Message(kind="who", nonce=ours))
    hello = _expect(channel, "hello")
    if not hmac.compare_digest(hello.proof, _proof(token, f"member {hello.rank}", ours, hello.nonce)):
        raise ChannelClosed("does not know the token")
    channel.send(Message(kind="welcome", proof=_proof(token, f"leader {hello.rank}", hello.nonce, ours)))
    return hello.rank


def introduce(channel: Channel, token: str, rank: int) -> None:
    """A member's side of the handshake.

    Raises:
        ChannelClosed: Whoever listens is not the leader, or refuses this member.
    """
    theirs = _expect(channel, "who").nonce
    ours = secrets.token_hex(16)
    proof = _proof(token, f"member {rank}", theirs, ours)
    channel.send(Message(kind="hello", rank=rank, nonce=ours, proof=proof))
    answer = _expect(channel, "welcome")
    if not hmac.compare_digest(answer.proof, _proof(token, f"leader {rank}", ours, theirs)):
        raise ChannelClosed("does not know the token")


def _expect(channel: Channel, kind: str) -> Message:
    message = channel.receive(_HANDSHAKE_SEC)
    if message is None:
        raise ChannelClosed("does not answer")
    if message.kind != kind:
        raise ChannelClosed(message.why or f"said {message.kind} where {kind} was due")
    return message


def _proof(token: str, who: str, theirs: str, ours: str) -> str:
    return hmac.new(token.encode(), f"{who}\n{theirs}\n{ours}".encode(), "sha256").hexdigest()

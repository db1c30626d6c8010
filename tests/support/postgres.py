"""A real PostgreSQL on loopback for tests: the machine's own server programs, data in a temporary folder.

The server is a process of the test's; what is stored in it, and by whom, is not known here.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

import sqlalchemy
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

__all__ = ["PostgresMissing", "PostgresServer", "postgres_server"]

_INSTALLED = Path("/usr/lib/postgresql")  # Debian and Ubuntu keep the server's programs off PATH
_HOST = "127.0.0.1"
_START_LIMIT_SEC = 60.0
_STOP_LIMIT_SEC = 15.0
_LOOK_SEC = 0.05
_THROW_AWAY = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",  # every process of a Dagster keeps some
    "unix_socket_directories": "",  # a socket's path may not be long, a temporary folder's may
}


class PostgresMissing(RuntimeError):
    """PostgreSQL is not installed, or cannot be run by this user."""


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A running server and a user who may create databases on it."""

    host: str
    port: int
    user: str
    password: str
    database: str = "postgres"

    @classmethod
    def at(cls, url: str) -> PostgresServer:
        """The server that a `postgresql://user:password@host:port/database` names."""
        parts = urlsplit(url)
        if not parts.hostname or not parts.username:
            raise ValueError("a server's URL is postgresql://user:password@host:port/database")
        return cls(
            parts.hostname,
            parts.port or 5432,
            unquote(parts.username),
            unquote(parts.password or ""),
            parts.path.strip("/") or "postgres",
        )

    @property
    def url(self) -> str:
        """What SQLAlchemy and dagster-postgres take. They read a plain `postgresql://` as another driver."""
        return f"postgresql+psycopg2://{self.user}:{self.password}@{self.host}:{self.port}/{self.database}"

    def new_database(self, name: str) -> PostgresServer:
        """Create a database, and return the server as seen from there."""
        engine = self.engine().execution_options(isolation_level="AUTOCOMMIT")  # not in a transaction
        with engine.connect() as connection:
            connection.execute(sqlalchemy.text(f'CREATE DATABASE "{name}"'))
        return replace(self, database=name)

    def engine(self) -> sqlalchemy.Engine:
        """To look into its database; connections are not kept."""
        return sqlalchemy.create_engine(self.url, poolclass=NullPool, connect_args={"connect_timeout": 5})


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Start a server, wait until it answers, and stop it at the end.

    Raises:
        PostgresMissing: It is not installed, or cannot be run by this user.
        RuntimeError: It does not come up; the message has the end of its log.
    """
    programs, account = _programs(), _account()
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))  # pytest's own folders are closed to other users
    try:
        data, password_file, log = folder / "data", folder / "password", folder / "log"
        server = PostgresServer(_HOST, _free_port(), "dagster", secrets.token_hex(16))
        password_file.write_text(server.password)
        if account is not None:
            for path in (folder, password_file):
                os.chown(path, account.pw_uid, account.pw_gid)
        init: list[str | Path] = [
            programs / "initdb",
            "-D",
            data,
            "-U",
            server.user,
            "--pwfile",
            password_file,
        ]
        init += ["-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync"]
        settings = _THROW_AWAY | {"listen_addresses": _HOST, "port": str(server.port)}
        run: list[str | Path] = [
            programs / "postgres",
            "-D",
            data,
            *(f"--{name}={value}" for name, value in settings.items()),
        ]
        with log.open("wb") as sink:
            made = _start(init, account, folder, sink.fileno())
            if made.wait() != 0:
                raise RuntimeError(f"initdb ended with {made.returncode}:\n{_tail(log)}")
            process = _start(run, account, folder, sink.fileno())
        try:
            _wait_until_up(process, server, log)
            yield server
        finally:
            _stop(process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path:
    """The folder with the newest installed server programs."""
    found = [path.parent for path in _INSTALLED.glob("*/bin/initdb")]
    on_path = shutil.which("initdb")
    if found:
        return max(found, key=lambda folder: [int(part) for part in folder.parent.name.split(".")])
    if on_path:
        return Path(on_path).resolve().parent
    raise PostgresMissing(
        f"no PostgreSQL server in {_INSTALLED} or on PATH: install the package `postgresql` "
        "(Debian: apt-get install postgresql); no service of it needs to run"
    )


def _account() -> pwd.struct_passwd | None:
    """Whom the server must run as: it refuses root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError as error:
        raise PostgresMissing("PostgreSQL does not run as root, and there is no user `postgres`") from error


def _start(
    command: Sequence[str | Path], account: pwd.struct_passwd | None, folder: Path, sink: int
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sink,
        stderr=subprocess.STDOUT,
        cwd=folder,
        env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
        user=account.pw_uid if account else None,
        group=account.pw_gid if account else None,
        extra_groups=[] if account else None,
    )


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)  # "fast": SIGTERM would wait for clients to leave
    try:
        process.wait(_STOP_LIMIT_SEC)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGQUIT)  # "immediate"; SIGKILL would leave its helpers behind
        process.wait()


def _wait_until_up(process: subprocess.Popen[bytes], server: PostgresServer, log: Path) -> None:
    deadline = time.monotonic() + _START_LIMIT_SEC
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"PostgreSQL ended with {process.returncode}:\n{_tail(log)}")
        try:
            server.engine().connect().close()
        except OperationalError:
            time.sleep(_LOOK_SEC)
        else:
            return
    raise RuntimeError(f"PostgreSQL did not come up:\n{_tail(log)}")


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port

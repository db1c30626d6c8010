"""A real S3 server on loopback for tests: moto as a child process, on a port the system picks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import boto3

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

_REGION = "us-east-1"
_START_LIMIT_S = 60


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server. `environment` is what a process needs to use it."""

    endpoint: str

    @property
    def environment(self) -> dict[str, str]:
        """The standard variables."""
        return {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": _REGION,
            "AWS_DEFAULT_REGION": _REGION,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self) -> S3Client:
        """An independent client, to look at the server from outside."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=_REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )

    def create_bucket(self, name: str) -> None:
        """Create a bucket (names have 3 characters or more)."""
        self.client().create_bucket(Bucket=name)

    def keys(self, bucket: str) -> list[str]:
        """Every key of a bucket (of the first thousand)."""
        return [item["Key"] for item in self.client().list_objects_v2(Bucket=bucket).get("Contents", [])]

    def unfinished_uploads(self, bucket: str) -> list[str]:
        """Keys of multipart uploads that were neither completed nor aborted."""
        return [
            item["Key"] for item in self.client().list_multipart_uploads(Bucket=bucket).get("Uploads", [])
        ]


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Start a server, wait until it answers, and stop it at the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_until_up(process, f"http://127.0.0.1:{port}/moto-api/")
        yield S3Server(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def s3_environment(server: S3Server) -> Iterator[None]:
    """This process (and its children) with the server's variables; the old ones are put back."""
    names = [*server.environment, "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN", "AWS_PROFILE"]
    before = {name: os.environ.pop(name, None) for name in names}
    os.environ.update(server.environment)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _wait_until_up(process: subprocess.Popen[bytes], url: str) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the S3 server ended with {process.returncode}")
        try:
            opener.open(url, timeout=5).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError("the S3 server did not come up")

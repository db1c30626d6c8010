"""Fixtures of the integration tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.s3 import S3Server, s3_environment, s3_server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A real S3 server on loopback, with this process's environment pointing at it."""
    with s3_server() as server, s3_environment(server):
        yield server

"""A sandbox for the tests that run code; where there is none they are skipped, with the reason."""

import os

import pytest

from batch_pipelines.tool_use.bubblewrap import SandboxLimits
from batch_pipelines.tool_use.sandbox import Sandbox
from batch_pipelines.tool_use.sandbox_check import SandboxUnavailable, open_sandbox


@pytest.fixture
def sandbox() -> Sandbox:
    try:
        # A limit of its own, by which a test can tell this sandbox's processes from others'.
        return open_sandbox(limits=SandboxLimits(memory_bytes=2**30 + os.getpid()))
    except SandboxUnavailable as error:
        if "does not hold" in str(error):
            pytest.fail(str(error))
        # No bubblewrap or no user namespaces: the tool is refused there too. `.ci/run` installs it.
        pytest.skip(f"no sandbox on this machine: {error}")

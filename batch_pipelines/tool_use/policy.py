"""Whether a request may use the tool it asks for."""

from pathlib import Path
from typing import Final

from batch_pipelines.api.errors import FieldError
from batch_pipelines.api.request import ToolConfig
from batch_pipelines.tool_use.loop import TOOL_NAME
from batch_pipelines.tool_use.sandbox_check import sandbox_available

__all__ = ["tool_error"]

_LONGEST_SEC: Final = 172_800


def tool_error(config: ToolConfig, *, allowed: bool, python: Path | None = None) -> FieldError | None:
    """Why a request's tool is refused, if it is; tries the sandbox on this machine.

    Args:
        config: What the request asks.
        allowed: Whether this deployment runs code at all.
        python: The Python that runs it; see `sandbox_check.open_sandbox`.
    """
    if config.name != TOOL_NAME:
        return FieldError("/tool_config/name", f"there is no tool {config.name!r}; there is {TOOL_NAME!r}")
    longest = config.execution_timeout_seconds
    if longest is not None and longest > _LONGEST_SEC:
        why = f"is {longest:,}; a job runs {_LONGEST_SEC:,} seconds at most"
        return FieldError("/tool_config/execution_timeout_seconds", why)
    if not allowed:
        return FieldError(
            "/tool_config",
            "this deployment does not run models' code; BATCH_PIPELINES_ALLOW_CODE_EVALUATOR=true allows it",
        )
    reason = sandbox_available(python)
    if reason is not None:
        return FieldError("/tool_config", f"code cannot be run safely here, so it is not run: {reason}")
    return None

"""Runs as Dagster reports them: its own words, our types. What they mean for a job is in `status`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from batch_pipelines.run_config import ASSET, JOB, PARTITION_TAG

__all__ = ["Run", "Step", "run_from"]


@dataclass(frozen=True, slots=True)
class Step:
    """A step that has started.

    Attributes:
        status: `IN_PROGRESS`, `SUCCESS`, `FAILURE` or `SKIPPED`; empty while it is not known.
        started_at: When it started.
        ended_at: When it ended; None before.
    """

    status: str
    started_at: datetime | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A run.

    Attributes:
        run_id: Dagster's id.
        status: Name of a `DagsterRunStatus`, such as `STARTED`.
        job_name: The Dagster job it ran.
        tags: Its tags.
        created_at: When it was submitted.
        started_at: When its first step could start; None before.
        ended_at: When it ended; None before.
        assets: Asset keys it was asked for, with `/` between their parts.
        steps: The steps that have started, by step key; filled in by `DagsterClient.run` only.
        config: Its run config; filled in by `DagsterClient.run` only.
    """

    run_id: str
    status: str
    job_name: str
    tags: Mapping[str, str]
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    assets: tuple[str, ...] = ()
    steps: Mapping[str, Step] = field(default_factory=dict)
    config: Mapping[str, Any] | None = None

    @property
    def job_id(self) -> str | None:
        """The batch job this is a run of; None if it is a run of something else."""
        ours = self.job_name == JOB or ASSET in self.assets
        return self.tags.get(PARTITION_TAG) if ours else None


def run_from(node: Mapping[str, Any]) -> Run:
    """A run from its GraphQL node."""
    return Run(
        run_id=node["runId"],
        status=node["status"],
        job_name=node["jobName"],
        tags={tag["key"]: tag["value"] for tag in node["tags"]},
        created_at=datetime.fromtimestamp(node["creationTime"], UTC),
        started_at=_time(node["startTime"]),
        ended_at=_time(node["endTime"]),
        assets=tuple("/".join(key["path"]) for key in node["assetSelection"] or ()),
        steps={step["stepKey"]: _step_from(step) for step in node.get("stepStats", ())},
        config=node.get("runConfig"),
    )


def _step_from(node: Mapping[str, Any]) -> Step:
    return Step(node["status"] or "", _time(node["startTime"]), _time(node["endTime"]))


def _time(seconds: float | None) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds is not None else None

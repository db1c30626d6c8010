"""A Dagster webserver in the test's own process: it keeps partitions and runs, and answers our queries.

It answers by operation name, with the same shapes as the real one;
`tests/unit/control/test_queries.py` holds the queries themselves against the real schema.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson

from batch_pipelines.control.dagster_client import DagsterClient
from batch_pipelines.run_config import ASSET, JOB, PARTITION_TAG, STORE_TAG, request_of

__all__ = ["FakeDagster", "FakeRun"]

URL = "http://dagster.test:3000"
_OPERATION = re.compile(r"\s*(?:query|mutation) (\w+)")
_FINISHED = ("SUCCESS", "FAILURE", "CANCELED")


@dataclass
class FakeRun:
    """A run, changed by tests at will."""

    run_id: str
    tags: dict[str, str]
    config: dict[str, Any] = field(default_factory=dict)
    status: str = "QUEUED"
    job_name: str = JOB
    created: float = 1_800_000_000.0
    started: float | None = None
    ended: float | None = None
    steps: dict[str, str] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)

    def node(self) -> dict[str, Any]:
        """As GraphQL has it."""
        return {
            "runId": self.run_id,
            "status": self.status,
            "jobName": self.job_name,
            "creationTime": self.created,
            "startTime": self.started,
            "endTime": self.ended,
            "tags": [{"key": key, "value": value} for key, value in self.tags.items()],
            "assetSelection": None,
        }


class FakeDagster:
    """Holds the state; `transport` is the network to it.

    Attributes:
        partitions: Keys registered.
        runs: Runs, the oldest first.
        store: Where the deployment says its job store is, if it does.
        deleted: Keys of partitions deleted.
        down: Whether connections are refused.
        broken: HTTP status to answer with instead, if any.
        config_errors: What a launch is refused with, if anything.
        launch_error: Message of another refusal, if any.
        silent_at_launch: Whether the launch is done but never answered.
        daemon_alive: Whether the daemons are healthy.
        location_error: Why the code location does not load, if it does not.
        asked: Names of the operations asked for, in order.
        on_ask: Called with the operation's name before it is answered.
    """

    def __init__(self) -> None:
        self.partitions: set[str] = set()
        self.store: str | None = None
        self.runs: list[FakeRun] = []
        self.deleted: list[str] = []
        self.down = False
        self.broken: int | None = None
        self.config_errors: list[dict[str, Any]] = []
        self.launch_error: str | None = None
        self.silent_at_launch = False
        self.daemon_alive = True
        self.location_error: str | None = None
        self.asked: list[str] = []
        self.on_ask: Callable[[str], None] = lambda _: None
        self.transport = httpx.MockTransport(self._handle)

    def client(self) -> DagsterClient:
        """A client of it."""
        return DagsterClient(URL, "batch_pipelines", transport=self.transport)

    def add_run(self, job_id: str, **fields: Any) -> FakeRun:
        """A new run of a job, the newest of all."""
        number = len(self.runs)
        fields.setdefault("created", 1_800_000_000.0 + 60 * number)
        fields["tags"] = {PARTITION_TAG: job_id, **fields.get("tags", {})}
        run = FakeRun(f"run-{number}", **fields)
        self.runs.append(run)
        return run

    def request_config(self, request: dict[str, Any]) -> dict[str, Any]:
        """A run config that holds a request."""
        return {"ops": {ASSET: {"config": request}}}

    def _handle(self, request: httpx.Request) -> httpx.Response:
        body = orjson.loads(request.content)
        match = _OPERATION.match(body["query"])
        assert match is not None
        name = match[1]
        self.asked.append(name)
        self.on_ask(name)
        if self.down:
            raise httpx.ConnectError("connection refused")
        if self.broken is not None:
            return httpx.Response(self.broken, text="<html>not Dagster</html>")
        return httpx.Response(200, json={"data": getattr(self, f"_{name.lower()}")(**body["variables"])})

    def _version(self) -> dict[str, Any]:
        return {"version": "1.13.27"}

    def _jobtags(self, selector: dict[str, str]) -> dict[str, Any]:
        assert selector["pipelineName"] == JOB
        tags = [{"key": STORE_TAG, "value": self.store}] if self.store else []
        return {"pipelineOrError": {"__typename": "Pipeline", "tags": tags}}

    def _location(self, name: str) -> dict[str, Any]:
        loaded = {"__typename": "RepositoryLocation"}
        if self.location_error is not None:
            loaded = {"__typename": "PythonError", "message": self.location_error}
        entry = {
            "__typename": "WorkspaceLocationEntry",
            "loadStatus": "LOADED",
            "locationOrLoadError": loaded,
        }
        return {"workspaceLocationEntryOrError": entry if name == "batch_pipelines" else None}

    def _daemons(self) -> dict[str, Any]:
        needed = {"daemonType": "QUEUED_RUN_COORDINATOR", "required": True, "healthy": self.daemon_alive}
        unneeded = {"daemonType": "OTHER", "required": False, "healthy": False, "lastHeartbeatTime": None}
        statuses = [needed | {"lastHeartbeatTime": 100.0}, unneeded]
        return {"instance": {"daemonHealth": {"allDaemonStatuses": statuses}}}

    def _addpartition(self, repository: dict[str, str], definition: str, key: str) -> dict[str, Any]:
        assert repository == {"repositoryLocationName": "batch_pipelines", "repositoryName": "__repository__"}
        assert definition == "batch_requests"
        if key in self.partitions:
            return {
                "addDynamicPartition": {"__typename": "DuplicateDynamicPartitionError", "message": "again"}
            }
        self.partitions.add(key)
        return {"addDynamicPartition": {"__typename": "AddDynamicPartitionSuccess"}}

    def _deletepartition(self, repository: dict[str, str], definition: str, key: str) -> dict[str, Any]:
        del repository, definition
        self.partitions.discard(key)
        self.deleted.append(key)
        return {"deleteDynamicPartitions": {"__typename": "DeleteDynamicPartitionsSuccess"}}

    def _launch(self, params: dict[str, Any]) -> dict[str, Any]:
        if self.config_errors:
            return {"launchRun": {"__typename": "RunConfigValidationInvalid", "errors": self.config_errors}}
        if self.launch_error is not None:
            return {"launchRun": {"__typename": "PythonError", "message": self.launch_error}}
        tags = {tag["key"]: tag["value"] for tag in params["executionMetadata"]["tags"]}
        run = self.add_run(
            tags[PARTITION_TAG],
            tags=tags,
            config=params["runConfigData"],
            job_name=params["selector"]["jobName"],
        )
        assert request_of(run.config)
        if self.silent_at_launch:
            raise httpx.ReadTimeout("no answer")
        return {"launchRun": {"__typename": "LaunchRunSuccess", "run": {"runId": run.run_id}}}

    def _runs(self, filter: dict[str, Any], cursor: str | None, limit: int) -> dict[str, Any]:
        runs = list(reversed(self.runs))
        if cursor is not None:
            runs = runs[[run.run_id for run in runs].index(cursor) + 1 :]
        wanted = {tag["key"]: tag["value"] for tag in filter["tags"]}
        found = [
            run
            for run in runs
            if wanted.items() <= run.tags.items() and run.status in filter.get("statuses", [run.status])
        ]
        return {"runsOrError": {"__typename": "Runs", "results": [run.node() for run in found[:limit]]}}

    def _run(self, id: str) -> dict[str, Any]:
        run = self._find(id)
        if run is None:
            return {"runOrError": {"__typename": "RunNotFoundError", "message": f"no run {id}"}}
        steps = [
            {"stepKey": f"{ASSET}.{key}", "status": status, "startTime": 100.0, "endTime": 110.0}
            for key, status in run.steps.items()
        ]
        return {
            "runOrError": {"__typename": "Run", **run.node(), "runConfig": run.config, "stepStats": steps}
        }

    def _failures(self, id: str, cursor: str | None) -> dict[str, Any]:
        run = self._find(id)
        assert run is not None
        at = int(cursor or 0)
        page = {"events": run.events[at : at + 2], "cursor": str(at + 2), "hasMore": at + 2 < len(run.events)}
        return {"logsForRun": {"__typename": "EventConnection", **page}}

    def _terminate(self, id: str, policy: str) -> dict[str, Any]:
        run = self._find(id)
        if run is None or run.status in _FINISHED:
            return {"terminateRun": {"__typename": "TerminateRunFailure", "message": "it has ended"}}
        at_once = run.status == "QUEUED" or policy == "MARK_AS_CANCELED_IMMEDIATELY"
        run.status = "CANCELED" if at_once else "CANCELING"
        return {"terminateRun": {"__typename": "TerminateRunSuccess"}}

    def _find(self, run_id: str) -> FakeRun | None:
        return next((run for run in self.runs if run.run_id == run_id), None)

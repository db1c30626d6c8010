"""A client of the Dagster webserver's GraphQL API: just what batch jobs need.

`dagster-graphql` ships a client too; it imports Dagster, cannot add partitions and takes no
partition. This one is plain HTTP. What a run means for its job is in `batch_pipelines.status`.
"""

import ipaddress
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import httpx

from batch_pipelines.api.errors import RequestInvalid
from batch_pipelines.control import queries
from batch_pipelines.control.config_errors import field_errors
from batch_pipelines.control.errors import DagsterError, DagsterUnreachable
from batch_pipelines.control.runs import Run, run_from
from batch_pipelines.run_config import JOB, PARTITION_TAG, STORE_TAG
from batch_pipelines.storage.locations import redact

__all__ = ["PARTITIONS", "DagsterClient"]

PARTITIONS = "batch_requests"
"""Name of the partitions definition whose keys are job ids."""

_REPOSITORY = "__repository__"
_PAGE = 100
_GATEWAY_ERRORS = (502, 503, 504)
_LOOK_SEC = 0.25


class DagsterClient:
    """Talks to one Dagster webserver about one code location. Use as a context manager, or `close` it."""

    def __init__(
        self, url: str, location: str, timeout: float = 30.0, *, transport: httpx.BaseTransport | None = None
    ) -> None:
        """See the class.

        Args:
            url: Address of the webserver, without `/graphql`.
            location: Name of the code location.
            timeout: Seconds to wait for an answer.
            transport: In place of the network, for tests.
        """
        self._url = url.rstrip("/")
        self._location = location
        self._http = httpx.Client(
            timeout=httpx.Timeout(timeout, connect=min(timeout, 5.0)),
            transport=transport,
            trust_env=not _is_loopback(self._url),  # a configured proxy cannot reach this machine's loopback
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    @property
    def url(self) -> str:
        """Address of the webserver, fit for messages."""
        return redact(self._url)

    def run_url(self, run_id: str) -> str:
        """The run's page in the UI."""
        return f"{self.url}/runs/{run_id}"

    def version(self) -> str:
        """Dagster's version."""
        return str(self._ask(queries.VERSION)["version"])

    def job_store(self, job_name: str = JOB) -> str | None:
        """URI of the deployment's job store, as the deployment says; None if it does not."""
        found = self._ask(queries.JOB_TAGS, selector={**self._repository, "pipelineName": job_name})
        tags = found["pipelineOrError"].get("tags") or []
        return next((tag["value"] for tag in tags if tag["key"] == STORE_TAG), None)

    def is_up(self) -> bool:
        """Whether a Dagster webserver answers."""
        try:
            self.version()
        except (DagsterUnreachable, DagsterError):
            return False
        return True

    def not_ready(self, *, heartbeat_since: float = 0.0) -> str | None:
        """What keeps jobs from being launched and run, or None if all is there.

        Args:
            heartbeat_since: Unix time; daemons that have not been heard of since then do not count.

        Raises:
            DagsterError: The code location failed to load; waiting does not help.
        """
        try:
            location = self._ask(queries.LOCATION, name=self._location)["workspaceLocationEntryOrError"]
            daemons = self._ask(queries.DAEMONS)["instance"]["daemonHealth"]["allDaemonStatuses"]
        except DagsterUnreachable as error:
            return str(error)
        if location is None:
            return f"{self.url} has no code location named {self._location!r}"
        loaded = location.get("locationOrLoadError") or location
        if loaded["__typename"] == "PythonError":
            raise DagsterError(f"the code location {self._location!r} does not load: {loaded['message']}")
        if location["loadStatus"] != "LOADED" or loaded["__typename"] != "RepositoryLocation":
            return f"the code location {self._location!r} is still loading"
        missing = [d["daemonType"] for d in daemons if d["required"] and not _is_alive(d, heartbeat_since)]
        return f"these daemons are not running: {', '.join(missing)}" if missing else None

    def wait_until_ready(
        self, deadline: float, *, heartbeat_since: float = 0.0, check: Callable[[], None] = lambda: None
    ) -> None:
        """Wait until jobs can be launched and run.

        Args:
            deadline: On the clock of `time.monotonic`.
            heartbeat_since: See `not_ready`.
            check: Called between looks; what it raises ends the wait.

        Raises:
            DagsterUnreachable: The deadline has passed; the message says what was missing.
            DagsterError: The code location failed to load.
        """
        while (reason := self.not_ready(heartbeat_since=heartbeat_since)) is not None:
            check()
            if time.monotonic() >= deadline:
                raise DagsterUnreachable(f"Dagster did not get ready in time: {reason}")
            time.sleep(_LOOK_SEC)

    def add_partition(self, key: str) -> None:
        """Register a job id as a partition; one that exists is fine."""
        answer = self._ask(queries.ADD_PARTITION, repository=self._repository, definition=PARTITIONS, key=key)
        result = answer["addDynamicPartition"]
        if result["__typename"] != "DuplicateDynamicPartitionError":
            _expect(result, "AddDynamicPartitionSuccess", "register the job")

    def delete_partition(self, key: str) -> None:
        """Forget a partition; one that does not exist is fine."""
        answer = self._ask(
            queries.DELETE_PARTITION, repository=self._repository, definition=PARTITIONS, key=key
        )
        _expect(answer["deleteDynamicPartitions"], "DeleteDynamicPartitionsSuccess", "forget the job")

    def launch(self, run_config: Mapping[str, Any], tags: Mapping[str, str], job_name: str = JOB) -> str:
        """Launch a run.

        Returns:
            The run's id.

        Raises:
            RequestInvalid: The run config does not fit, with every reason Dagster found.
            DagsterError: Dagster refused for another reason.
            DagsterUnreachable: No answer; the run may have been launched nevertheless.
        """
        params = {
            "selector": self._repository | {"jobName": job_name},
            "runConfigData": run_config,
            "mode": "default",
            "executionMetadata": {"tags": _pairs(tags)},
        }
        result = self._ask(queries.LAUNCH, params=params)["launchRun"]
        if result["__typename"] == "RunConfigValidationInvalid":
            raise RequestInvalid(field_errors(result["errors"]))
        _expect(result, "LaunchRunSuccess", "launch the job")
        return str(result["run"]["runId"])

    def list_runs(
        self,
        *,
        limit: int = _PAGE,
        cursor: str | None = None,
        statuses: Sequence[str] = (),
        tags: Mapping[str, str] | None = None,
    ) -> list[Run]:
        """Runs, the newest first.

        Args:
            limit: Most runs to return.
            cursor: Id of the run after which to go on.
            statuses: Only runs with one of these, if any are given.
            tags: Only runs with all of these.
        """
        wanted: dict[str, Any] = {"tags": _pairs(tags or {})}
        if statuses:
            wanted["statuses"] = list(statuses)
        answer = self._ask(queries.RUNS, filter=wanted, cursor=cursor, limit=limit)["runsOrError"]
        _expect(answer, "Runs", "list runs")
        return [run_from(node) for node in answer["results"]]

    def runs_of(self, job_id: str) -> list[Run]:
        """The runs of a job, the newest first: more than one if it was retried."""
        return [run for run in self.list_runs(tags={PARTITION_TAG: job_id}) if run.job_id == job_id]

    def run(self, run_id: str) -> Run | None:
        """A run with its steps and config, or None if there is none."""
        answer = self._ask(queries.RUN, id=run_id)["runOrError"]
        if answer["__typename"] == "RunNotFoundError":
            return None
        _expect(answer, "Run", "read the run")
        return run_from(answer)

    def failures(self, run_id: str) -> list[str]:
        """Why a run failed: of each failed step the innermost error; if none failed, the run's own errors."""
        steps: list[str] = []
        whole: list[str] = []
        cursor: str | None = None
        while True:
            page = self._ask(queries.FAILURES, id=run_id, cursor=cursor)["logsForRun"]
            _expect(page, "EventConnection", "read the run's events")
            for event in page["events"]:
                if event["__typename"] == "ExecutionStepFailureEvent":
                    steps.append(f"{event['stepKey'].partition('.')[2]}: {_innermost(event)}")
                elif event["__typename"] == "RunFailureEvent" or event.get("error"):
                    whole.append(_innermost(event))
            if not page["hasMore"]:
                return list(dict.fromkeys(steps or whole))
            cursor = page["cursor"]

    def terminate(self, run_id: str, *, at_once: bool = False) -> None:
        """Ask for a run's end. A queued run ends at once, a running one when its processes have stopped.

        Args:
            run_id: The run.
            at_once: Mark it as cancelled without asking its process, which is known to be gone.

        Raises:
            DagsterError: It cannot be ended; most often because it has ended.
        """
        policy = "MARK_AS_CANCELED_IMMEDIATELY" if at_once else "SAFE_TERMINATE"
        result = self._ask(queries.TERMINATE, id=run_id, policy=policy)["terminateRun"]
        _expect(result, "TerminateRunSuccess", "cancel the run")

    @property
    def _repository(self) -> dict[str, str]:
        return {"repositoryLocationName": self._location, "repositoryName": _REPOSITORY}

    def _ask(self, document: str, **variables: Any) -> dict[str, Any]:
        try:
            response = self._http.post(
                f"{self._url}/graphql", json={"query": document, "variables": variables}
            )
        except httpx.TimeoutException as error:
            raise DagsterUnreachable(f"Dagster at {self.url} did not answer in time") from error
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise DagsterUnreachable(
                f"no Dagster answers at {self.url} ({error}); `make dev` starts one, "
                "BATCH_PIPELINES_DAGSTER_URL or --url names another"
            ) from error
        if response.status_code in _GATEWAY_ERRORS:
            raise DagsterUnreachable(f"{self.url} answers {response.status_code}: no Dagster behind it")
        try:
            answer: dict[str, Any] = response.json()
            data, errors = answer.get("data"), answer.get("errors")
        except (ValueError, AttributeError) as error:
            raise DagsterError(
                f"{self.url} does not answer as Dagster does (HTTP status {response.status_code})"
            ) from error
        if errors or not isinstance(data, dict):
            texts = "; ".join(str(each.get("message")) for each in errors or ())
            raise DagsterError(f"Dagster at {self.url} answers: {texts or response.status_code}")
        return data


def _expect(result: Mapping[str, Any], kind: str, action: str) -> None:
    if result["__typename"] != kind:
        reason = result.get("message") or result["__typename"]
        raise DagsterError(f"Dagster did not {action}: {str(reason).strip()}")


def _innermost(event: Mapping[str, Any]) -> str:
    """The message of the error that everything else was caused by, without its class's module."""
    error = event.get("error")
    if error is None:
        return str(event.get("message") or "no reason given").strip()
    # A deliberate failure says it best itself; Dagster wraps any other exception in one of its own.
    chain = [error] if error["className"] == "Failure" else [error, *error["causes"]]
    message = str(chain[-1]["message"]).strip()
    first, separator, rest = message.partition(": ")
    return rest if separator and "." in first and " " not in first else message


def _is_alive(daemon: Mapping[str, Any], since: float) -> bool:
    return bool(daemon["healthy"]) and (daemon["lastHeartbeatTime"] or 0.0) >= since


def _pairs(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in tags.items()]


def _is_loopback(url: str) -> bool:
    try:
        host = httpx.URL(url).host
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except (ValueError, httpx.InvalidURL):
        return False

"""Jobs, put together from Dagster's runs and the job store."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import ValidationError

from batch_pipelines.api.errors import RequestInvalid
from batch_pipelines.api.job import BatchCompletionsJob, JobStatus
from batch_pipelines.api.model_config import BatchCompletionsModelConfig
from batch_pipelines.api.parse import parse_request
from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.control.dagster_client import DagsterClient
from batch_pipelines.control.errors import DagsterError, NoSuchJob
from batch_pipelines.control.runs import Run
from batch_pipelines.jobs.folder import InvalidJobId, JobFolder
from batch_pipelines.jobs.pod_notes import PodNote, read_notes
from batch_pipelines.jobs.progress import JobProgress, job_progress
from batch_pipelines.run_config import LABEL_TAG_PREFIX, request_of
from batch_pipelines.settings import Settings
from batch_pipelines.stages.merge import Summary
from batch_pipelines.status import FINAL, job_of, stage_of, status_of, will_be_retried
from batch_pipelines.storage.errors import ObjectNotFound
from batch_pipelines.storage.object_storage import ObjectStorage

__all__ = ["JobView", "Jobs"]

_PAGE = 200
_READS_IN_FLIGHT = 8
_POD_NOTES = 5


@dataclass(frozen=True, slots=True)
class JobView:
    """A job at one moment.

    Attributes:
        job: As clients see it.
        run: Its newest run, with its steps.
        stage: What it is doing, in a word or two.
        progress: How far it is; None while its input is not sharded.
        summary: What it did; None unless its output is published.
    """

    job: BatchCompletionsJob
    run: Run
    stage: str
    progress: JobProgress | None
    summary: Summary | None

    @property
    def is_final(self) -> bool:
        """Whether nothing changes any more by itself."""
        return self.job.status in FINAL


class Jobs:
    """The jobs of a deployment."""

    def __init__(self, client: DagsterClient, settings: Settings) -> None:
        self.client = client
        self._settings = settings
        self._store = ObjectStorage(roots=[settings.job_store])

    def view(self, job_id: str) -> JobView:
        """The job with everything that is known of it.

        Raises:
            NoSuchJob: Dagster has no run of it.
        """
        runs = self._runs(job_id)
        newest = self.client.run(runs[0].run_id) or runs[0]
        runs[0] = newest
        folder = self._folder(job_id)
        summary = self._summary(folder, newest)
        progress = job_progress(self._store, folder, ttl=self._settings.claim_ttl) if folder else None
        failed = status_of(newest, published=summary is not None) is JobStatus.FAILED
        notes = [] if newest.status == "SUCCESS" else self._notes(folder, newest)
        reason = "\n".join(self._reasons(newest, notes)) if failed else None
        job = job_of(
            job_id,
            self._request(folder, newest),
            runs,
            summary=summary,
            progress=progress,
            reason=reason,
            pods=[f"{note.step}: {note.message}" for note in notes[-_POD_NOTES:]],
        )
        return JobView(job, newest, stage_of(newest, progress), progress, summary)

    def recent(
        self, *, limit: int, status: JobStatus | None = None, labels: Mapping[str, str] | None = None
    ) -> list[BatchCompletionsJob]:
        """The jobs that ran last, the newest job first; without progress, and without reasons of failures.

        Args:
            limit: Most jobs to return.
            status: Only jobs with this status.
            labels: Only jobs with all of these labels.
        """
        jobs: list[BatchCompletionsJob] = []
        with ThreadPoolExecutor(_READS_IN_FLIGHT, thread_name_prefix="job-read") as pool:
            for page in self._pages(labels or {}):
                for job in pool.map(self._brief, page):
                    if status is None or job.status is status:
                        jobs.append(job)
                if len(jobs) >= limit:
                    break
        return sorted(jobs[:limit], key=lambda job: job.created_at, reverse=True)

    def cancel(self, job_id: str) -> BatchCompletionsJob | None:
        """Ask for the end of a job. Queued, it ends at once; running, when its processes have stopped.

        Returns:
            None, or the job if it had ended before.

        Raises:
            NoSuchJob: Dagster has no run of it.
            DagsterError: Its run has just failed and the next one is not there yet.
        """
        run = self._runs(job_id)[0]
        if will_be_retried(run):
            raise DagsterError(f"job {job_id} is about to be retried; cancel it again in a few seconds")
        view = self.view(job_id)
        if view.is_final:
            return view.job
        if run.status != "CANCELING":
            self.client.terminate(run.run_id)
        return None

    def _runs(self, job_id: str) -> list[Run]:
        runs = self.client.runs_of(job_id)
        if not runs:
            raise NoSuchJob(job_id)
        return runs

    def _pages(self, labels: Mapping[str, str]) -> Iterator[list[list[Run]]]:
        """Runs by job, the newest first, a page at a time; a job's older runs may be missing."""
        tags = {f"{LABEL_TAG_PREFIX}{name}": value for name, value in labels.items()}
        seen: set[str] = set()
        cursor: str | None = None
        while runs := self.client.list_runs(limit=_PAGE, cursor=cursor, tags=tags):
            page: dict[str, list[Run]] = {}
            for run in runs:
                if run.job_id is not None and run.job_id not in seen:
                    page.setdefault(run.job_id, []).append(run)
            yield list(page.values())
            seen |= page.keys()
            cursor = runs[-1].run_id

    def _brief(self, runs: list[Run]) -> BatchCompletionsJob:
        job_id = runs[0].job_id or ""
        folder = self._folder(job_id)
        summary = self._summary(folder, runs[0])
        return job_of(job_id, self._request(folder, runs[0]), runs, summary=summary)

    def _folder(self, job_id: str) -> JobFolder | None:
        try:
            return JobFolder(self._settings.job_store, job_id)
        except InvalidJobId:
            return None  # typed by hand in the UI; such a run fails in its first step

    def _summary(self, folder: JobFolder | None, run: Run) -> Summary | None:
        """What the job did, if this run of it published the output."""
        data = self._read(folder.summary) if folder and run.status == "SUCCESS" else None
        summary = Summary.model_validate_json(data) if data is not None else None
        return summary if summary is not None and summary.run_id == run.run_id else None

    def _request(self, folder: JobFolder | None, run: Run) -> CreateBatchCompletionsV2Request:
        """The request as accepted, or as launched if it never was accepted."""
        data = self._read(folder.request) if folder else None
        if data is not None:
            try:
                return CreateBatchCompletionsV2Request.model_validate_json(data)
            except ValidationError:  # accepted before a rule of today's
                return _unchecked(orjson.loads(data))
        if run.config is None:
            run = self.client.run(run.run_id) or run
        return _as_launched(run.config or {})

    def _notes(self, folder: JobFolder | None, run: Run) -> list[PodNote]:
        return read_notes(self._store, folder, run.run_id) if folder else []

    def _reasons(self, run: Run, notes: list[PodNote]) -> list[str]:
        """Why a run failed: first what its pods' statuses told, which Dagster does not know."""
        failures = self.client.failures(run.run_id)
        untold = [
            note
            for note in notes
            if note.kind != "waiting" and not any(note.message in failure for failure in failures)
        ]
        told = [f"{note.step}: {note.message}" if note.step else note.message for note in untold]
        return [*told, *failures]

    def _read(self, uri: str) -> bytes | None:
        try:
            return self._store.read(uri)
        except ObjectNotFound:
            return None


def _as_launched(run_config: Mapping[str, Any]) -> CreateBatchCompletionsV2Request:
    try:
        raw = request_of(dict(run_config))
    except (KeyError, TypeError):
        raw = {}
    try:
        return parse_request(raw)
    except (RequestInvalid, ValidationError):
        return _unchecked(raw)


def _unchecked(raw: Mapping[str, Any]) -> CreateBatchCompletionsV2Request:
    """A request that broke the contract, so that its job can be shown with the reason."""
    model = raw.get("model_config")
    settings = {"model": "?", **(model if isinstance(model, dict) else {})}
    return CreateBatchCompletionsV2Request.model_construct(
        input_data_path=_text_of(raw.get("input_data_path")),
        output_data_path=_text_of(raw.get("output_data_path")) or "?",
        priority=_text_of(raw.get("priority")),
        engine_config=BatchCompletionsModelConfig.model_construct(**settings),
        labels={},
    )


def _text_of(value: object) -> str | None:
    return value if isinstance(value, str) else None

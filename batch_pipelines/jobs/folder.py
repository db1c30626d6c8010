"""Names of every object in a job's folder.

One place says where things lie; nothing here reads or writes. Work products lie under the first
digits of the job's fingerprint (its *generation*), so a part computed for another request or
another input can never be merged by mistake, however late a stray worker writes it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ulid import ULID

__all__ = [
    "InvalidJobId",
    "JobFolder",
    "check_job_id",
    "mint_job_id",
    "unfinished_marker",
    "unfinished_markers",
]

_JOB_ID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")  # a label's value on Kubernetes, too
_GENERATION_DIGITS = 16


class InvalidJobId(ValueError):
    """A job id that cannot name a folder."""


def mint_job_id() -> str:
    """A new job id: a ULID, so ids sort by time of submission."""
    return str(ULID())


def check_job_id(job_id: str) -> str:
    """Return `job_id` if it can safely name a folder and a partition.

    Ids are minted by `mint_job_id`; a person who launches from the UI may type one.

    Raises:
        InvalidJobId: It holds anything but letters, digits, `_` and `-`, begins or ends with one of the
            latter, or is over 63 characters.
    """
    if not _JOB_ID.fullmatch(job_id):
        raise InvalidJobId(
            f"job id {job_id[:80]!r} cannot be used: 1 to 63 letters, digits, '_' or '-', "
            "with a letter or digit at both ends"
        )
    return job_id


@dataclass(frozen=True, slots=True)
class JobFolder:
    """Where the durable state of one job lies.

    Attributes:
        store: URI of the job store, without a trailing slash.
        job_id: The job, and the partition key of its asset.
    """

    store: str
    job_id: str

    def __post_init__(self) -> None:
        """Refuse an id that could leave the store."""
        check_job_id(self.job_id)

    @property
    def uri(self) -> str:
        """The folder itself."""
        return f"{self.store}/{self.job_id}"

    @property
    def request(self) -> str:
        """What was asked, as accepted."""
        return f"{self.uri}/request.json"

    @property
    def manifest(self) -> str:
        """Shards, counts and fingerprint; written once the input is sharded."""
        return f"{self.uri}/manifest.json"

    @property
    def summary(self) -> str:
        """Counts and usage; written by the merge after the output."""
        return f"{self.uri}/summary.json"

    def shard(self, shard_id: int, sha256: str) -> str:
        """The items of a shard; by their hash, so that no other input's shard can take its place."""
        return f"{self.uri}/shards/{shard_id:05d}.{sha256[:_GENERATION_DIGITS]}.jsonl"

    def parts(self, fingerprint: str) -> str:
        """Folder of the records committed for a fingerprint."""
        return f"{self.uri}/parts/{fingerprint[:_GENERATION_DIGITS]}"

    def part(self, fingerprint: str, shard_id: int) -> str:
        """The records of a shard: created once, and then the truth."""
        return f"{self.parts(fingerprint)}/{shard_id:05d}.jsonl"

    def claims(self, fingerprint: str) -> str:
        """Folder of the claims made for a fingerprint."""
        return f"{self.uri}/claims/{fingerprint[:_GENERATION_DIGITS]}"

    def claim(self, fingerprint: str, shard_id: int, attempt: int) -> str:
        """Who works on a shard: a hint."""
        return f"{self.claims(fingerprint)}/{shard_id:05d}.{attempt}"

    def workers(self, fingerprint: str) -> str:
        """Folder of the workers' progress reports, which are their heartbeats too."""
        return f"{self.uri}/progress/{fingerprint[:_GENERATION_DIGITS]}"

    def worker(self, fingerprint: str, worker: str) -> str:
        """One worker's progress report."""
        return f"{self.workers(fingerprint)}/{worker}.json"

    def hardware(self, run_id: str) -> str:
        """What a run's replicas run on, where that was decided for them."""
        return f"{self.uri}/hardware/{run_id}.json"

    def pod_notes(self, run_id: str) -> str:
        """Folder of what is known of a run's pods that ended badly."""
        return f"{self.uri}/pods/{run_id}"

    def pod_note(self, run_id: str, name: str) -> str:
        """One such note."""
        return f"{self.pod_notes(run_id)}/{name}.json"

    def gang(self, pod_group: str) -> str:
        """Where the first pod of an engine over several says how the others reach it."""
        return f"{self.uri}/gangs/{pod_group}.json"

    def step_output(self, run_id: str, names: Sequence[str]) -> str:
        """A small value passed from one step of a run to the next, by its step, output and mapping key."""
        path = "/".join(re.sub(r"[^A-Za-z0-9_.-]", "-", name) for name in names)
        return f"{self.uri}/steps/{run_id}/{path}.json"


def unfinished_markers(store: str, fingerprint: str) -> str:
    """Folder of the jobs that have begun, and not published, work with a fingerprint."""
    return f"{store}/_unfinished/{fingerprint}"


def unfinished_marker(store: str, fingerprint: str, job_id: str) -> str:
    """Says that a job has begun, and not published, work with a fingerprint."""
    return f"{unfinished_markers(store, fingerprint)}/{check_job_id(job_id)}"

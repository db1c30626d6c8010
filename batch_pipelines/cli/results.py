"""A completed job's first answers and its failed items, for a person to read."""

import textwrap
from collections.abc import Mapping
from typing import Any

import orjson

from batch_pipelines.cli.output_command import records_of
from batch_pipelines.cli.render import readable
from batch_pipelines.jobs.folder import JobFolder
from batch_pipelines.jobs.manifest import read_manifest
from batch_pipelines.settings import Settings
from batch_pipelines.stages.merge import Summary
from batch_pipelines.stages.preview import preview
from batch_pipelines.storage.object_storage import ObjectStorage

__all__ = ["describe_results"]

_WIDTH = 96
_ANSWERS = 3
_FAILURES = 3


def describe_results(settings: Settings, summary: Summary) -> str:
    """The first answers with their prompts, the first failed items, and where the files are."""
    counts = f"{summary.succeeded} of {summary.total} items answered"
    tokens = f"{summary.completion_tokens:,} tokens written"
    files = [f"output  {readable(summary.output)}"]
    if summary.errors is not None:
        files.append(f"errors  {readable(summary.errors)}")
    blocks = [f"{counts}, {tokens}", *_answers(settings, summary), *_failures(summary), "\n".join(files)]
    return "\n\n".join(blocks)


def _answers(settings: Settings, summary: Summary) -> list[str]:
    store = ObjectStorage(roots=[settings.job_store])
    folder = JobFolder(settings.job_store, summary.job_id)
    manifest = read_manifest(store, folder)
    if manifest is None:
        return []
    return [
        f"[{row.index}] {_wrapped(row.prompt, '    ')}\n -> {_wrapped(row.answer, '    ')}"
        for row in preview(store, folder, manifest, _ANSWERS)
    ]


def _failures(summary: Summary) -> list[str]:
    if summary.errors is None:
        return []
    with ObjectStorage(roots=[summary.errors]).open_reader(summary.errors) as source:
        failures = [orjson.loads(line) for line, _ in zip(records_of(source), range(_FAILURES), strict=False)]
    return [_failure(failure) for failure in failures]


def _failure(failure: Mapping[str, Any]) -> str:
    line = f" (line {failure['line']} of the input)" if failure["line"] else ""
    error = failure["error"]
    what = f"[{failure['index']}] failed{line}: {error['type']}, {error['code']}"
    return f"{what}\n    {_wrapped(error['message'], '    ')}"


def _wrapped(text: str, indent: str) -> str:
    lines = textwrap.wrap(" ".join(text.split()), _WIDTH, initial_indent=indent, subsequent_indent=indent)
    return "\n".join(lines).strip()

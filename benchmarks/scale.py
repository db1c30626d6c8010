"""One large job on the fake engine, through Dagster: speed of each stage, peak memory of every process.

Run it with `make bench-scale`. The job is a real run: a process a step, state on local disk. Memory is
the kernel's own high-water mark of each process, read while it lives.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import dagster as dg
import psutil

_LOOK_SEC = 0.1


def job_definition() -> dg.JobDefinition:
    """The job, in each of the run's processes; settings come from the environment."""
    from batch_pipelines.definitions import defs
    from batch_pipelines.run_config import JOB

    return defs.resolve_job_def(JOB)


class MemoryWatch:
    """The highest resident memory of each process below this one, by what it runs."""

    def __init__(self) -> None:
        """Begin with this process."""
        self.peaks: dict[int, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "MemoryWatch":
        """Begin to look."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Look no more."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._stop.wait(_LOOK_SEC):
            for process in [me, *me.children(recursive=True)]:
                peak = _high_water_mark(process.pid)
                if peak:
                    self.peaks[process.pid] = max(peak, self.peaks.get(process.pid, 0))


def _high_water_mark(pid: int) -> int:
    """Peak resident memory of a process in KiB; 0 once it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)


def write_items(path: Path, count: int) -> None:
    """Write `count` small chats, a line each."""
    with path.open("w") as file:
        for n in range(count):
            item = {
                "custom_id": f"row-{n}",
                "messages": [{"role": "user", "content": f"What is {n} plus {n % 97}?"}],
            }
            file.write(json.dumps(item) + "\n")


def run(folder: Path, items: int, replicas: int) -> dict[str, Any]:
    """Run the job in `folder` and return what was measured."""
    source = folder / "items.jsonl"
    write_items(source, items)
    home = folder / "dagster"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    request = {
        "input_data_path": str(source),
        "output_data_path": str(folder / "output.jsonl"),
        "model_config": {"model": "fake"},
        "data_parallelism": replicas,
    }
    with dg.DagsterInstance.from_config(str(home)) as instance:
        instance.add_dynamic_partitions("batch_requests", ["scale"])
        with MemoryWatch() as memory:
            result = dg.execute_job(
                dg.reconstructable(job_definition),
                instance=instance,
                run_config={"ops": {"batch_completions": {"config": request}}},
                tags={"dagster/partition": "scale"},
            )
        stats = instance.get_run_step_stats(result.run_id)
    seconds = _seconds_by_stage(stats)
    return {
        "items": items,
        "complete_and_in_order": result.success and _is_complete(folder / "output.jsonl", items),
        "seconds": seconds,
        "items_per_second": {stage: round(items / took) for stage, took in seconds.items() if took},
        "peak_memory_mib": sorted((round(peak / 1024) for peak in memory.peaks.values()), reverse=True),
    }


def _is_complete(output: Path, items: int) -> bool:
    """Whether the output has every item's record, once, in input order."""
    count = 0
    with output.open("rb") as lines:
        for line in lines:
            if json.loads(line)["custom_id"] != f"row-{count}":
                return False
            count += 1
    return count == items


def _seconds_by_stage(stats: list[Any]) -> dict[str, float]:
    """Wall time of each stage; of the replicas, from the first's start to the last's end."""
    spans: dict[str, tuple[float, float]] = {}
    for step in stats:
        stage = step.step_key.split(".")[-1].split("[")[0]
        start, end = spans.get(stage, (step.start_time, step.end_time))
        spans[stage] = (min(start, step.start_time), max(end, step.end_time))
    return {stage: round(end - start, 1) for stage, (start, end) in spans.items()}


def main() -> int:
    """Run with the arguments of the command line and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--replicas", type=int, default=2)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="scale-"))
    os.environ |= {
        "BATCH_PIPELINES_ENGINE": "fake",
        "BATCH_PIPELINES_HOME": str(folder / "home"),
        "BATCH_PIPELINES_STORAGE_ROOTS": json.dumps([folder.as_uri()]),
    }
    try:
        measured = run(folder, arguments.items, arguments.replicas)
    finally:
        shutil.rmtree(folder)
    print(json.dumps(measured, indent=2))
    return 0 if measured["complete_and_in_order"] else 1


if __name__ == "__main__":
    sys.exit(main())

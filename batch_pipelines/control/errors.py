"""What the control plane raises.

```
Exception
└── ControlError
    ├── DagsterUnreachable   nobody answers, or nobody that can say what happened
    ├── DagsterError         Dagster answered, and refused or failed
    └── NoSuchJob            Dagster has no run of the job
```

A launch that Dagster refuses because of its config is a `RequestInvalid`.
"""

__all__ = ["ControlError", "DagsterError", "DagsterUnreachable", "NoSuchJob"]


class ControlError(Exception):
    """Base of this package's errors."""


class DagsterUnreachable(ControlError):
    """No answer from the Dagster webserver."""


class DagsterError(ControlError):
    """Dagster answered that it could not do what was asked."""


class NoSuchJob(ControlError):
    """There is no run of the job, so it was never launched, or its runs were deleted."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"no job {job_id!r} in this Dagster")
        self.job_id = job_id

"""The API server's errors, as the `Status` objects it answers with."""

from __future__ import annotations

from typing import Any

__all__ = ["ApiFailure", "already_exists", "bad_request", "conflict", "forbidden", "invalid", "not_found"]


class ApiFailure(Exception):
    """A request that fails.

    Attributes:
        code: HTTP status.
        reason: Kubernetes' word for it, such as NotFound.
        headers: Further headers of the answer.
    """

    def __init__(
        self, code: int, reason: str, message: str, *, headers: dict[str, str] | None = None, **details: Any
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.headers = headers or {}
        self._details = details

    def status(self) -> dict[str, Any]:
        """The `Status` object of the answer."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": self._details,
            "code": self.code,
        }


def not_found(plural: str, name: str) -> ApiFailure:
    """404 for an object."""
    return ApiFailure(404, "NotFound", f'{plural} "{name}" not found', name=name, kind=plural)


def already_exists(plural: str, name: str) -> ApiFailure:
    """409 for a name that is taken."""
    return ApiFailure(409, "AlreadyExists", f'{plural} "{name}" already exists', name=name, kind=plural)


def conflict(plural: str, name: str) -> ApiFailure:
    """409 for a write on an old version of an object."""
    message = (
        f'Operation cannot be fulfilled on {plural} "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    return ApiFailure(409, "Conflict", message, name=name, kind=plural)


def forbidden(plural: str, name: str, why: str) -> ApiFailure:
    """403 of an admission check."""
    return ApiFailure(403, "Forbidden", f'{plural} "{name}" is forbidden: {why}', name=name, kind=plural)


def bad_request(message: str) -> ApiFailure:
    """400."""
    return ApiFailure(400, "BadRequest", message)


def invalid(kind: str, name: str, problems: list[str]) -> ApiFailure:
    """422 with every problem."""
    told = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
    return ApiFailure(
        422,
        "Invalid",
        f'{kind} "{name}" is invalid: {told}',
        name=name,
        kind=kind,
        causes=[{"message": problem} for problem in problems],
    )

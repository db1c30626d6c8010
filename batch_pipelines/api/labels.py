"""Labels: names and values that Kubernetes takes, told before a pod is refused for them.

A request's labels go on its pods as `label.batch-pipelines/<name>`, and those the deployment picks under
their own names too. So a name has no prefix: Kubernetes allows one only, and this one is ours.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["LABELS_SCHEMA", "MAX_LABELS", "key_problem", "label_errors", "value_problem"]

MAX_LABELS: Final = 32
"""Most labels of a request: each is a tag of its run, and a label of each of its jobs and pods."""

_LONGEST: Final = 63
_LONGEST_PREFIX: Final = 253
_PART = "[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_NAME = re.compile(_PART, re.ASCII)
_PREFIX = re.compile(
    r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*", re.ASCII
)
_RULE: Final = (
    f"at most {_LONGEST} letters, digits, '-', '_' and '.', with a letter or digit at its start and end"
)
_RESERVED: Final = frozenset({"controller-revision-hash", "controller-uid", "job-name", "pod-template-hash"})
"""By these Kubernetes' controllers find the pods that are theirs."""

LABELS_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [
        {
            "type": "object",
            "propertyNames": {
                "pattern": f"^{_PART}$",
                "maxLength": _LONGEST,
                "not": {"enum": sorted(_RESERVED)},
            },
            "additionalProperties": {"type": "string", "pattern": f"^(?:{_PART})?$", "maxLength": _LONGEST},
            "maxProperties": MAX_LABELS,
        },
        {"type": "null"},
    ]
}
"""The rules as JSON Schema."""


def label_errors(labels: Mapping[str, Any]) -> list[tuple[str | None, str]]:
    """What is wrong with a request's labels: the label's name, or None for all of them, and a sentence.

    Args:
        labels: Names and values; a value that is no text is left to others to refuse.
    """
    errors: list[tuple[str | None, str]] = []
    if len(labels) > MAX_LABELS:
        errors.append((None, f"has {len(labels)} labels; at most {MAX_LABELS} are kept"))
    for name, value in labels.items():
        problems = [_name_problem(name), value_problem(value) if isinstance(value, str) else None]
        errors += [(name, problem) for problem in problems if problem is not None]
    return errors


def value_problem(value: str) -> str | None:
    """Why a text cannot be a label's value in Kubernetes, or None if it can.

    Args:
        value: The text; it may be empty.
    """
    if value and (len(value) > _LONGEST or not _NAME.fullmatch(value)):
        return f"the value {_shown(value)} cannot be a Kubernetes label: it may have {_RULE}, or be empty"
    return None


def key_problem(key: str) -> str | None:
    """Why a text cannot be a label's key in Kubernetes, with a prefix or without, or None if it can.

    Args:
        key: The text, such as `nvidia.com/gpu.product`.
    """
    prefix, slash, name = key.rpartition("/")
    good_prefix = not slash or (len(prefix) <= _LONGEST_PREFIX and _PREFIX.fullmatch(prefix))
    if good_prefix and len(name) <= _LONGEST and _NAME.fullmatch(name):
        return None
    return (
        f"{_shown(key)} cannot be the key of a Kubernetes label: it may have {_RULE}, and before it the name "
        "of a domain and '/'"
    )


def _name_problem(name: str) -> str | None:
    if name in _RESERVED:
        return f"the name {name!r} is Kubernetes' own; take another"
    if "/" in name:
        return (
            f"the name {_shown(name)} has a prefix; write it without, such as 'team', not 'example.com/team'"
        )
    if len(name) > _LONGEST or not _NAME.fullmatch(name):
        return f"the name {_shown(name)} cannot be a Kubernetes label: it may have {_RULE}"
    return None


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}...")

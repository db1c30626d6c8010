"""Whether one item of an input can be answered: what sharding and planning both ask of each.

The contract's own rules are in `batch_pipelines.api`, the engine's in `batch_pipelines.translation`, the
model's in `batch_pipelines.preflight`; here they are asked in this order.
"""

from collections.abc import Callable, Mapping
from typing import Any

from batch_pipelines.api.errors import FieldError, RequestInvalid, pointer
from batch_pipelines.api.items import ItemKind, ValidItem, validate_item
from batch_pipelines.api.output import ItemError
from batch_pipelines.api.parse import parse_v1_header
from batch_pipelines.engines.needs import EngineNeeds
from batch_pipelines.inputs.reader import RawItem
from batch_pipelines.preflight.protocol import Preflight
from batch_pipelines.tool_use.refusals import refusal as tool_refusal
from batch_pipelines.translation.survey import Survey
from batch_pipelines.translation.translate import draft_of

__all__ = ["ItemCheck", "check_header", "item_check", "judge", "needs_of", "told"]

ItemCheck = Callable[[ItemKind, Any, int], ItemError | None]
"""Given an item's kind, its parsed JSON and the bytes of that: why it would be refused, if it would be."""


def judge(kind: ItemKind | None, raw: RawItem, check: ItemCheck) -> ValidItem | ItemError:
    """Judge one item.

    Args:
        kind: What the items before it were; none for the first.
        raw: The item as it was read.
        check: Checks what the item alone does not show.
    """
    if raw.data is None:
        return ItemError(message=f"the item {raw.error}", type="BadRequestError", param=None, code=400)
    checked = validate_item(kind, raw.data)
    if isinstance(checked, ItemError):
        return checked
    return check(checked.kind, checked.item, len(raw.data)) or checked


def item_check(survey: Survey, preflight: Preflight, *, with_tool: bool = False) -> ItemCheck:
    """The check of a job: what the engine cannot do first, then what this model cannot.

    Args:
        survey: Takes in what items ask of the engine.
        preflight: Checks them against the model.
        with_tool: Whether the job has a `tool_config`, under which some items cannot be answered.
    """

    def check(kind: ItemKind, item: Any, size: int) -> ItemError | None:
        draft = survey.draft(kind, item)
        if isinstance(draft, ItemError):
            return draft
        error = preflight.check(kind, item, size)
        if error is None and with_tool and kind != "v1":
            body = draft.body if draft is not None else {"stop": item.get("stop")}
            error = tool_refusal(kind, item, body)
        if error is None and draft is not None:
            survey.count(draft)
        return error

    return check


def needs_of(survey: Survey, preflight: Preflight) -> EngineNeeds:
    """What the items seen by both ask of the engine's set-up; of forms the preflight knows more."""
    if preflight.structured_backend is None:
        return survey.needs
    return survey.needs.model_copy(update={"structured_backend": preflight.structured_backend})


def check_header(fields: Mapping[str, Any], preflight: Preflight) -> None:
    """Check the fields beside the prompts of V1 content, which hold for all of them.

    Raises:
        RequestInvalid: They break the contract, or the engine or the model cannot do what they ask.
    """
    parse_v1_header(fields)
    draft = draft_of("v1", "", v1_header=fields)
    error = draft if isinstance(draft, ItemError) else preflight.check_v1_header(fields)
    if error is not None:
        message = error.message.removeprefix(f"{error.param}: ")
        raise RequestInvalid([FieldError(pointer((error.param or "",)), message)])


def told(notes: Mapping[str, int]) -> list[str]:
    """What items set without effect, a sentence each with how many did."""
    return [f"{note} ({count:,} item{'s' * (count != 1)})" for note, count in notes.items()]

"""What all wire types share: their base classes and the number types that refuse surprising coercions.

JSON has one kind of number, so `64.0` is a whole number and `1` is a fine temperature; but `"64"` is a
string and `true` is no number, and accepting those hides mistakes. No fields belong here.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Strict,
    ValidationError,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError
from pydantic_core import core_schema as cs

__all__ = [
    "ClosedModel",
    "Fraction",
    "Int",
    "NonNegativeInt",
    "Number",
    "OpenModel",
    "PositiveInt",
    "Toggle",
    "Whole",
    "with_errors",
]


class ClosedModel(BaseModel):
    """An object whose every key is known: one that is not is a mistake of its sender."""

    model_config = ConfigDict(
        extra="forbid",
        protected_namespaces=(),
        serialize_by_alias=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


class OpenModel(ClosedModel):
    """An object that may carry keys of its sender's own; they are kept in `model_extra`."""

    model_config = ConfigDict(extra="allow")


@dataclass(frozen=True, slots=True)
class Whole:
    """Marks an int field: integers and floats without a fraction pass, strings and booleans do not."""

    ge: int | None = None
    le: int | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Build the check from core parts, so that it runs without calling Python."""
        from_float = cs.chain_schema([cs.float_schema(strict=True), cs.int_schema(strict=False)])
        whole = cs.union_schema(
            [cs.int_schema(strict=True), from_float],
            mode="left_to_right",
            custom_error_type="whole_number",
            custom_error_message="Input should be a whole number",
        )
        return cs.chain_schema([whole, cs.int_schema(ge=self.ge, le=self.le)])

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Describe the field as a bounded integer."""
        bounds = {"minimum": self.ge, "maximum": self.le}
        return {"type": "integer", **{name: bound for name, bound in bounds.items() if bound is not None}}


Int = Annotated[int, Whole()]
NonNegativeInt = Annotated[int, Whole(ge=0)]
PositiveInt = Annotated[int, Whole(ge=1)]
Number = Annotated[float, Strict()]
Fraction = Annotated[float, Strict(), Field(ge=0, le=1)]
Toggle = Annotated[bool, Strict()]


def with_errors(
    title: str,
    found: Iterable[tuple[tuple[int | str, ...], str, str]],
    error: ValidationError | None = None,
    leave_out: Callable[[tuple[int | str, ...]], bool] = lambda _: False,
) -> ValidationError:
    """One validation error out of `found` and what another validation reported.

    A validator of pydantic's can add one error only, and it hides the errors of the others; this lets all
    of them be reported together.

    Args:
        title: Name of what was validated.
        found: Path, error type and message of each new error.
        error: The validation error to add to.
        leave_out: Says by path which of its errors to drop.
    """
    details = [
        InitErrorDetails(type=PydanticCustomError(kind, message), loc=path, input=None)
        for path, kind, message in found
    ]
    details += [
        InitErrorDetails(type=PydanticCustomError(e["type"], e["msg"]), loc=e["loc"], input=e["input"])
        for e in (error.errors(include_url=False) if error else [])
        if not leave_out(e["loc"])
    ]
    return ValidationError.from_exception_data(title, details)

"""Tools a chat may offer the model, how it may choose among them, and the calls it made."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Tag

from batch_pipelines.api.base import OpenModel, Toggle

__all__ = [
    "ChatCompletionFunctionCallOption",
    "ChatCompletionFunctions",
    "ChatCompletionMessageToolCall",
    "ChatCompletionNamedToolChoice",
    "ChatCompletionTool",
    "Function3",
    "FunctionCall",
    "FunctionCallChoice",
    "FunctionObject",
    "ToolChoice",
]


class FunctionObject(OpenModel):
    """A function the model may ask to have called."""

    description: str | None = None
    """What it does; the model decides by it when to call."""
    name: str
    """Up to 64 letters, digits, underscores and dashes."""
    parameters: dict[str, Any] | None = None
    """JSON Schema of its arguments; none when left out."""
    strict: Toggle | None = None
    """Whether arguments must keep to the schema."""


class ChatCompletionTool(OpenModel):
    """A tool; functions are the only kind."""

    type: Literal["function"]
    """Always `function`."""
    function: FunctionObject
    """The function."""


class Function3(OpenModel):
    """Names a function."""

    name: str
    """The function's name."""


class ChatCompletionNamedToolChoice(OpenModel):
    """Makes the model call one given tool."""

    type: Literal["function"]
    """Always `function`."""
    function: Function3
    """The tool to call."""


class ChatCompletionFunctionCallOption(OpenModel):
    """Makes the model call one given function, in the older form."""

    name: str
    """The function to call."""


class ChatCompletionFunctions(OpenModel):
    """A function the model may ask to have called, in the older form of a tool."""

    description: str | None = None
    """What it does; the model decides by it when to call."""
    name: str
    """Up to 64 letters, digits, underscores and dashes."""
    parameters: dict[str, Any] | None = None
    """JSON Schema of its arguments; none when left out."""


class FunctionCall(OpenModel):
    """A call of a function by the model."""

    name: str
    """The function it called."""
    arguments: str
    """The arguments it wrote, as JSON text; a model may write text that is not JSON."""


class ChatCompletionMessageToolCall(OpenModel):
    """A call of a tool by the model."""

    id: str
    """Identifier that the tool's message refers to."""
    type: Literal["function"]
    """Always `function`."""
    function: FunctionCall
    """The call."""


def _choice_shape(value: Any) -> str | None:
    if isinstance(value, str):
        return "<mode>"
    return "<named>" if isinstance(value, (dict, OpenModel)) else None


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("<mode>")]
    | Annotated[ChatCompletionNamedToolChoice, Tag("<named>")],
    Discriminator(
        _choice_shape,
        custom_error_type="tool_choice",
        custom_error_message="Input should be 'none', 'auto', 'required' or an object that names a function",
    ),
]

FunctionCallChoice = Annotated[
    Annotated[Literal["none", "auto"], Tag("<mode>")]
    | Annotated[ChatCompletionFunctionCallOption, Tag("<named>")],
    Discriminator(
        _choice_shape,
        custom_error_type="function_call",
        custom_error_message="Input should be 'none', 'auto' or an object that names a function",
    ),
]

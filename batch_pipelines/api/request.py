"""The request that starts a job."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    Discriminator,
    Field,
    ModelWrapValidatorHandler,
    Strict,
    Tag,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)

from batch_pipelines.api.base import ClosedModel, NonNegativeInt, PositiveInt, Toggle, Whole, with_errors
from batch_pipelines.api.chat import FilteredChatCompletionV2Request
from batch_pipelines.api.completion import FilteredCompletionV2Request
from batch_pipelines.api.kinds import find_misfits, kind_of
from batch_pipelines.api.labels import LABELS_SCHEMA, label_errors
from batch_pipelines.api.model_config import BatchCompletionsModelConfig
from batch_pipelines.api.v1 import CreateBatchCompletionsV1RequestContent

__all__ = [
    "DEFAULT_RUNTIME_SECONDS",
    "Content",
    "CreateBatchCompletionsV2Request",
    "GpuType",
    "ToolConfig",
    "unknown_model_config_keys",
]

DEFAULT_RUNTIME_SECONDS: Final = 86_400

GpuType = Literal[
    "nvidia-tesla-t4",
    "nvidia-ampere-a10",
    "nvidia-ampere-a100",
    "nvidia-ampere-a100e",
    "nvidia-hopper-h100",
    "nvidia-hopper-h100-1g20gb",
    "nvidia-hopper-h100-3g40gb",
]

_QUANTITIES = {str: "<str>", int: "<int>", float: "<float>"}

Quantity = Annotated[
    Annotated[str, Tag("<str>")]
    | Annotated[int, Strict(), Tag("<int>")]
    | Annotated[float, Strict(), Tag("<float>")],
    Discriminator(
        lambda value: _QUANTITIES.get(type(value)),
        custom_error_type="quantity",
        custom_error_message="Input should be a number or a string such as '8' or '32Gi'",
    ),
]


class ToolConfig(ClosedModel):
    """A tool the model may use between rounds of generation; experimental."""

    name: str
    """The tool."""
    max_iterations: PositiveInt | None = None
    """Most rounds of generation; 10 when unset."""
    execution_timeout_seconds: PositiveInt | None = None
    """Longest run of the tool, in seconds; 60 when unset."""
    should_retry_on_error: Toggle | None = None
    """Whether code that lacks a name runs again with what came before; true when unset."""


def _content_kind(value: Any) -> str | None:
    if isinstance(value, (dict, CreateBatchCompletionsV1RequestContent)):
        return "<v1>"
    if not isinstance(value, list):
        return None
    kind = next((kind for kind in map(kind_of, value) if kind is not None), "completion")
    return f"<{kind}>"


def _check_kinds(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Validate content; an item of the wrong kind gives one error, not one for each field it lacks."""
    misfits = find_misfits(value if isinstance(value, list) else [])
    if not misfits.indices:
        return handler(value)
    found = [((index,), "item_kind", message) for index, message in misfits.messages.items()]
    try:
        handler(value)
    except ValidationError as error:
        raise with_errors(
            "content", found, error, lambda path: len(path) > 1 and path[1] in misfits.indices
        ) from None
    raise with_errors("content", found)


Content = Annotated[
    Annotated[CreateBatchCompletionsV1RequestContent, Tag("<v1>")]
    | Annotated[list[FilteredCompletionV2Request], Tag("<completion>")]
    | Annotated[list[FilteredChatCompletionV2Request], Tag("<chat>")],
    Discriminator(
        _content_kind,
        custom_error_type="content_kind",
        custom_error_message="Input should be a list of items, or an object with `prompts`",
    ),
    WrapValidator(_check_kinds),
]


def _check_labels(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Validate labels; null is the same as none."""
    if value is None:
        return {}
    problems = label_errors(value) if isinstance(value, Mapping) else []
    found = [((() if name is None else (name,)), "label", problem) for name, problem in problems]
    if not found:
        return handler(value)
    try:
        handler(value)
    except ValidationError as error:
        raise with_errors("labels", found, error) from None
    raise with_errors("labels", found)


Labels = Annotated[
    dict[str, str],
    WrapValidator(_check_labels, json_schema_input_type=Annotated[Any, WithJsonSchema(LABELS_SCHEMA)]),
]


class CreateBatchCompletionsV2Request(ClosedModel):
    """A job: where its items are or the items themselves, the model to run, and where the output goes."""

    input_data_path: str | None = Field(default=None, min_length=1)
    """URI of the items: a JSON array, JSON Lines, or one V1 object; gzip and zstd are fine. Not together with
    `content`."""
    output_data_path: str = Field(min_length=1)
    """URI of the file to write: a JSON array with one record for each item, in the order of the input."""
    labels: Labels = Field(default_factory=dict)
    """Names and values to find the job by, such as a team."""
    data_parallelism: Annotated[int, Whole(ge=1, le=64)] | None = None
    """Copies of the model that share the items, 1 to 64; 1 when unset."""
    max_runtime_sec: Annotated[int, Whole(ge=1, le=172_800)] | None = None
    """Seconds after which the job is stopped, up to two days; one day when unset."""
    priority: str | None = None
    """How urgent the job is; a name of the deployment's, or a whole number where higher goes first."""
    tool_config: ToolConfig | None = None
    """A tool the model may use; experimental."""
    cpus: Quantity | None = None
    """CPUs of each node of a replica: a number, or a Kubernetes quantity such as `500m`."""
    gpus: NonNegativeInt | None = None
    """GPUs of each node of a replica."""
    memory: Quantity | None = None
    """Memory of each node of a replica: bytes, or a Kubernetes quantity such as `32Gi`."""
    gpu_type: GpuType | None = None
    """Kind of GPU."""
    storage: Quantity | None = None
    """Local disk of each node of a replica: bytes, or a Kubernetes quantity such as `100Gi`."""
    nodes_per_worker: PositiveInt | None = None
    """Machines that each replica spans; 1 when unset."""
    content: Content | None = None
    """The items themselves: completions, chats, or one V1 object. Not together with `input_data_path`."""
    engine_config: BatchCompletionsModelConfig = Field(alias="model_config")
    """The model to run and how its engine is set up."""

    @property
    def replicas(self) -> int:
        """Copies of the model that share the items."""
        return self.data_parallelism or 1

    @property
    def runtime_seconds(self) -> int:
        """Seconds after which the job is stopped."""
        return self.max_runtime_sec or DEFAULT_RUNTIME_SECONDS

    @model_validator(mode="wrap")
    @classmethod
    def _check_source(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        found = _source_errors(data) if isinstance(data, Mapping) else []
        if not found:
            return handler(data)
        try:
            handler(data)
        except ValidationError as error:
            raise with_errors(cls.__name__, found, error) from None
        raise with_errors(cls.__name__, found)


def unknown_model_config_keys(request: CreateBatchCompletionsV2Request) -> list[str]:
    """Keys of `model_config` that are set but have no effect, each with the nearest known name."""
    return request.engine_config.unknown_keys()


def _source_errors(data: Mapping[str, Any]) -> list[tuple[tuple[int | str, ...], str, str]]:
    given = [name for name in ("input_data_path", "content") if data.get(name) is not None]
    if len(given) == 1:
        return []
    if given:
        return [(("content",), "two_sources", "give either `content` or `input_data_path`, not both")]
    return [((), "no_source", "give `input_data_path`, or the items themselves as `content`")]

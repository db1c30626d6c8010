"""JSON Schemas of the wire types, for editors and for checks in other languages."""

from typing import Any, Final, Literal

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema as cs

from batch_pipelines.api.chat import FilteredChatCompletionV2Request
from batch_pipelines.api.completion import FilteredCompletionV2Request
from batch_pipelines.api.job import BatchCompletionsJob
from batch_pipelines.api.model_config import BatchCompletionsModelConfig
from batch_pipelines.api.output import OutputRecord
from batch_pipelines.api.request import CreateBatchCompletionsV2Request

__all__ = ["DIALECT", "SchemaName", "json_schema"]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

SchemaName = Literal["request", "job", "item", "output", "model-config"]

_TYPES: dict[SchemaName, Any] = {
    "request": CreateBatchCompletionsV2Request,
    "job": BatchCompletionsJob,
    "item": FilteredCompletionV2Request | FilteredChatCompletionV2Request,
    "output": list[OutputRecord],
    "model-config": BatchCompletionsModelConfig,
}


class _Generator(GenerateJsonSchema):
    """Says what the models check, in words every validator knows."""

    def tagged_union_schema(self, schema: cs.TaggedUnionSchema) -> JsonSchemaValue:
        """Any of the branches: an empty list fits two of them, so that exactly one would be wrong."""
        described = super().tagged_union_schema(schema)
        described.pop("discriminator", None)
        if "oneOf" in described:
            described["anyOf"] = described.pop("oneOf")
        return described

    def default_schema(self, schema: cs.WithDefaultSchema) -> JsonSchemaValue:
        """Leave defaults out: an unset field stays unset, it does not turn into null."""
        return self.generate_inner(schema["schema"])


def json_schema(name: SchemaName) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a wire type.

    Args:
        name: The request, the job, one item of an input file, a whole output file, or the model's settings.
    """
    described = TypeAdapter(_TYPES[name]).json_schema(
        by_alias=True, schema_generator=_Generator, mode="validation"
    )
    return {"$schema": DIALECT, **described}

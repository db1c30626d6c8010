"""Inline content as a stream of items, as if it had come from a file."""

import orjson

from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.api.v1 import CreateBatchCompletionsV1RequestContent
from batch_pipelines.inputs.reader import InputStream, RawItem, V1Header

__all__ = ["inline_input"]


def inline_input(request: CreateBatchCompletionsV2Request) -> InputStream:
    """The items of a request with `content`; their line is 0, there being no file."""
    content = request.model_dump(mode="json", by_alias=True, exclude_unset=True, include={"content"})[
        "content"
    ]
    header = None
    items = content
    if isinstance(request.content, CreateBatchCompletionsV1RequestContent):
        items = content.pop("prompts")
        header = V1Header(content)
    return InputStream(
        header, (RawItem(index, 0, orjson.dumps(item), None) for index, item in enumerate(items))
    )

"""What becomes of every field of the contract, as one page.

The page is put together from where each fate is decided: items from the translation's table, the model's
settings from the engine's arguments. Only what no other module decides is written down here.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args

from batch_pipelines.api.schema import SchemaName, json_schema
from batch_pipelines.engines.vllm_args import ALIASES, CHANGED, DROPPED, FLAGS, NOT_ARGUMENTS
from batch_pipelines.engines.vllm_since import CONFIG_SINCE, ITEM_SINCE
from batch_pipelines.translation.draft import FieldRule
from batch_pipelines.translation.table import CHAT_FIELDS, COMPLETION_FIELDS, V1_FIELDS

__all__ = ["FieldRow", "Section", "render_markdown", "sections"]

_ITEMS: Final[dict[str, dict[str, FieldRule]]] = {
    "FilteredCompletionV2Request": COMPLETION_FIELDS,
    "FilteredChatCompletionV2Request": CHAT_FIELDS,
    "CreateBatchCompletionsV1RequestContent": {
        "prompts": FieldRule("translated", lambda *_: None, "Each is one item, sent as `prompt`."),
        **V1_FIELDS,
    },
}
_REQUEST: Final = {
    "input_data_path": ("used", "Read once, in one streaming pass; must lie in an allowed storage prefix."),
    "output_data_path": ("used", "Written complete or not at all, an errors file beside it."),
    "labels": ("used", "Tags of the run; on Kubernetes, labels of its pods too."),
    "data_parallelism": ("used", "Replicas that share the job's shards; no more than there are shards."),
    "max_runtime_sec": ("used", "A deadline for the whole job, its time in the queue aside."),
    "priority": ("used", "Order in Dagster's queue; on Kubernetes, the PriorityClass of the pods."),
    "tool_config": ("used", "Refused unless the deployment allows it: see `docs/code-evaluator.md`."),
    "content": ("used", "As a file would be; bounded in size by the deployment."),
    "model_config": ("used", "See below."),
}
_HARDWARE: Final = (
    "used",
    "Of a replica's pods on Kubernetes; what is not given is filled in, as `batch-pipelines plan` tells. "
    "Elsewhere a warning says that it has no effect.",
)
_TOOL_CONFIG: Final = {
    "name": ("used", "`code_evaluator` is the only tool; any other is refused."),
    "max_iterations": ("used", ""),
    "execution_timeout_seconds": ("used", ""),
    "should_retry_on_error": ("used", ""),
}
_FIRST: Final = (
    "CreateBatchCompletionsV2Request",
    "BatchCompletionsModelConfig",
    "FilteredChatCompletionV2Request",
    "FilteredCompletionV2Request",
    "CreateBatchCompletionsV1RequestContent",
    "ToolConfig",
)
_WHOLE: Final = {
    "ChatCompletionStreamOptions": ("no effect", "A batch answers whole."),
    "WebSearchOptions": ("refused", "The engine cannot search the web."),
    "UserLocation": ("refused", "The engine cannot search the web."),
    "WebSearchLocation": ("refused", "The engine cannot search the web."),
    "Audio2": ("refused", "The engine cannot speak."),
    "PredictionContent": ("no effect", "As `prediction`."),
    "ChatCompletionFunctions": ("translated", "As a tool's `function`."),
    "ChatCompletionFunctionCallOption": ("translated", "As a named `tool_choice`."),
    "BatchCompletionsJob": ("told", "By `batch-pipelines status`."),
}
_PARTICULAR: Final = {
    ("JsonSchema", "strict"): ("no effect", "A schema is always kept to."),
    ("JsonSchema", "schema"): ("passed", "Refused if missing, or if the engine cannot compile it."),
    ("FunctionObject", "parameters"): (
        "passed",
        "Refused if the engine cannot compile it for a forced call.",
    ),
    ("FunctionObject", "strict"): ("passed", "True when unset and the call is forced."),
    ("ChatCompletionRequestAssistantMessage", "audio"): ("refused", "The engine's text models cannot hear."),
    ("ChatCompletionRequestAssistantMessage", "function_call"): ("translated", "As the only tool call."),
    ("ChatCompletionRequestFunctionMessage", "role"): ("translated", "As `tool`."),
}


@dataclass(frozen=True, slots=True)
class FieldRow:
    """One field.

    Attributes:
        name: The field, as it is written in JSON.
        fate: What becomes of it, in a word.
        meaning: What it is.
        happens: What happens beyond that; may be empty.
        since: The vLLM release that brought what it is sent as; empty where vLLM has no part in it.
        required: Whether its object must have it.
    """

    name: str
    fate: str
    meaning: str
    happens: str
    since: str
    required: bool


@dataclass(frozen=True, slots=True)
class Section:
    """One object of the contract."""

    title: str
    meaning: str
    rows: tuple[FieldRow, ...]


def sections() -> list[Section]:
    """Every object of the contract with all its fields, requests first, then what is within them."""
    found: dict[str, Section] = {}
    for name in get_args(SchemaName):
        if name == "output":
            continue  # records are what an engine writes, not fields anybody sets
        schema = json_schema(name)
        definitions = schema.get("$defs", {})
        if "title" in schema:
            definitions = {schema["title"]: schema, **definitions}
        for title, definition in definitions.items():
            if "properties" in definition and title not in found:
                found[title] = Section(title, _first(definition), tuple(_rows(title, definition)))
    rest = [title for title in found if title not in _FIRST]
    return [found[title] for title in (*_FIRST, *rest)]


def render_markdown() -> str:
    """The page."""
    lines = [
        "# Every field, and what becomes of it",
        "",
        "Written by `make docs`; the tables are the program's own. A field that is *passed* reaches vLLM by",
        "its name; *translated*, under another name or in another form; *emulated*, by other requests or by",
        "changing the reply; *refused*, it puts an error that names it in the item's place. Fields that are",
        "unset are not sent, so the model's own generation settings hold. The last column is the release of",
        "vLLM that brought what the field is sent as; the engine is vLLM 0.32.0. A name in bold is required.",
        "An item's other keys are its sender's own and echoed; the job's warnings tell of those that look",
        "like a field.",
    ]
    for section in sections():
        lines += ["", f"## {section.title}", "", section.meaning, ""]
        lines += ["| field | | what it is, and what happens | vLLM |", "|---|---|---|---|"]
        for row in section.rows:
            text = " ".join(filter(None, [row.meaning, row.happens])).replace("|", "\\|")
            name = f"**`{row.name}`**" if row.required else f"`{row.name}`"
            lines.append(f"| {name} | {row.fate} | {text} | {row.since} |")
    return "\n".join(lines) + "\n"


def _rows(title: str, definition: Mapping[str, Any]) -> Iterator[FieldRow]:
    for name, field in definition["properties"].items():
        fate, happens, since = _fate(title, name)
        required = name in definition.get("required", [])
        yield FieldRow(name, fate, _first(field), happens, since, required)


def _fate(title: str, name: str) -> tuple[str, str, str]:
    if title in _ITEMS:
        rule = _ITEMS[title][name]
        return rule.fate, rule.says, ITEM_SINCE.get(name, "")
    if title == "BatchCompletionsModelConfig":
        return (*_config_fate(name), CONFIG_SINCE.get(name, ""))
    if title == "CreateBatchCompletionsV2Request":
        return (*_REQUEST.get(name, _HARDWARE), "")
    if title == "ToolConfig":
        return (*_TOOL_CONFIG[name], "")
    return (*_PARTICULAR.get((title, name), _WHOLE.get(title, ("passed", ""))), "")


def _config_fate(name: str) -> tuple[str, str]:
    if name in DROPPED:
        return "no effect", f"The job's warnings say so: {DROPPED[name]}."
    if name in ALIASES:
        return "translated", f"As `{ALIASES[name]}`, where that is unset."
    if name in NOT_ARGUMENTS:
        return "used", f"{NOT_ARGUMENTS[name][:1].upper()}{NOT_ARGUMENTS[name][1:]}."
    flag = FLAGS[name]
    if flag == "--" + name.replace("_", "-"):
        return "passed", CHANGED.get(name, "")
    return "translated", f"As `{flag}`. {CHANGED.get(name, '')}".strip()


def _first(described: Mapping[str, Any]) -> str:
    texts: Iterable[str] = str(described.get("description", "")).split("\n\n")
    return " ".join(next(iter(texts)).split())

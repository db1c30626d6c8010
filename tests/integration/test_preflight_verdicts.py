"""The preflight's verdicts against vLLM's own: what vLLM refuses is refused, and little more."""

import copy
import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from batch_pipelines.models.smollm2 import NAME
from batch_pipelines.preflight.helper import Helper
from batch_pipelines.preflight.model_folder import read_model_folder
from batch_pipelines.preflight.model_preflight import ModelPreflight
from batch_pipelines.preflight.rendering import render
from batch_pipelines.preflight.settings import PreflightSettings
from tests.integration.test_real_vllm import MODELS_DIR

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore"),  # the engine's own imports warn
]

MODEL = MODELS_DIR / NAME
VOCABULARY = 49152
CONTEXT = 64

STRING, INTEGER, ARRAY, OBJECT = ({"type": name} for name in ("string", "integer", "array", "object"))
PIECES: list[dict[str, Any]] = [
    {"minLength": 2}, {"maxLength": 4}, {"pattern": "^a+$"}, {"format": "date"}, {"format": "binary"},
    {"format": ["date"]}, {"multipleOf": 3}, {"minimum": 1}, {"minimum": 5, "maximum": 2},
    {"uniqueItems": True}, {"contains": {"type": "string"}}, {"minItems": 1}, {"items": {"type": "integer"}},
    {"properties": {"a": {"type": "string"}}}, {"required": ["a"]}, {"additionalProperties": False},
    {"patternProperties": {"^a": {"type": "string"}}},
    {"patternProperties": {"^a": {"type": "string"}, "^b": {"type": "integer"}}},
    {"propertyNames": {"pattern": "^[a-z]+$"}}, {"propertyNames": {"pattern": "^a", "maxLength": 3}},
    {"unevaluatedProperties": False}, {"dependentRequired": {"a": ["b"]}}, {"enum": ["a", 1]}, {"enum": []},
    {"const": "x"}, {"not": {"type": "null"}}, {"if": {"type": "string"}, "then": {"minLength": 2}},
    {"anyOf": [{"type": "string"}, {"type": "integer"}]}, {"anyOf": []},
    {"allOf": [{"type": "string"}]}, {"allOf": [{"type": "string"}, {"enum": ["yes"]}]},
    {"oneOf": [{"type": "string"}, {"type": "null"}]},
    {"$ref": "#/$defs/n", "$defs": {"n": {"type": "null"}}},
    {"$ref": "#/$defs/nowhere"}, {"$ref": "https://example.org/schema.json"}, {"x-unknown": 1},
]  # fmt: skip
TYPES: list[dict[str, Any]] = [
    {}, STRING, INTEGER, ARRAY, OBJECT, {"type": "number"}, {"type": ["string", "null"]}, {"type": "strin"},
    {"type": 5}, {"type": []},
]  # fmt: skip


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


SCHEMAS: list[Any] = [
    *({**type_, **piece} for type_, piece in itertools.product(TYPES, PIECES)),
    *({**OBJECT, **a, **b} for a, b in itertools.combinations(PIECES[13:22], 2)),
    *({**STRING, **a, **b} for a, b in itertools.combinations(PIECES[:6], 2)),
    *({"type": "object", "properties": {"p": {**STRING, **piece}}, "required": ["p"]} for piece in PIECES),
    *({"type": "array", "items": {"anyOf": [{**INTEGER, **piece}, {"type": "null"}]}} for piece in PIECES),
    nested(31), nested(32), nested(40),
    {"enum": [{"type": "integer", "multipleOf": 2}]}, {"type": "string", "minLength": 1.5},
]  # fmt: skip
REGEXES = [
    "", "a", "(a+)+b", "a{1,1000}", "a{5,2}", "(?=a)b", r"(a)\1", r"\bfoo\b", "^foo$", "(?P<n>a)", "(?i)abc",
    r"\p{L}+", r"\d{4}-\d{2}", "(a", "[a", "[z-a]", "[^a]+", "\U0001f600+", "a\x00b", r"\x00", "a*?b", "a*+",
    ".*", "**", "?", "a{1000000000000000000}", "(?:a|b)*", "a|", "()", "\\",
]  # fmt: skip
GRAMMARS = [
    "", " \n ", 'root ::= "a"', 'start ::= "a"', "root ::= foo", 'root ::= "a', 'root ::= "a" # c ::= d',
    '# comment ::= \nstart: "a"', 'start: "a"', 'foo: "a"', "start: foo", "start: WORD\n%import common.WORD",
    "start: X\n%import nowhere.X", "start: <|im_end|>", "hello world", "123", 'start: /(?=a)b/',
    'root ::= "a" | "b"\nroot ::= "c"', "root ::= [^a]+", 'root ::= ("a" | "b"){1,3}', 'start: "a"~2', "// x",
    'root ::= "\\q"', 'start[lazy]: /a*/',
]  # fmt: skip
CHOICES: list[list[str]] = [
    [], ["a"], ["a", "a"], ["", "a"], [""], ["日本", "\U0001f600"], ["::="],
    ['quo"te', "back\\slash", "new\nline", "tab\t", "nul\x00", "\x7f"],
]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from vllm.tokenizers import get_tokenizer

    return get_tokenizer(str(MODEL))


@pytest.fixture(scope="module")
def helper() -> Iterator[Helper]:
    with Helper(memory_bytes=4 * 2**30) as helper:
        yield helper


def vllm_verdict(kind: str, form: Any, backend: str, tokenizer: Any) -> str | None:
    """The library vLLM gives a form to, none if it refuses it."""
    from vllm.config import StructuredOutputsConfig
    from vllm.exceptions import VLLMValidationError
    from vllm.sampling_params import SamplingParams, StructuredOutputsParams

    model: Any = SimpleNamespace(is_diffusion=False)
    config: Any = {"backend": backend}
    asked = StructuredOutputsParams(**{kind: form})
    try:
        SamplingParams(structured_outputs=asked)._validate_structured_outputs(
            model, StructuredOutputsConfig(**config), tokenizer
        )
    except VLLMValidationError:
        return None
    return asked._backend


def our_verdict(kind: str, form: Any, backend: str, helper: Helper) -> tuple[str | None, str | None]:
    loads: dict[str, dict[str, Any]] = {
        "load_tokenizer": {"file": str(MODEL / "tokenizer.json"), "eos": "<|im_end|>"},
        "load_grammars": {"vocab_size": VOCABULARY, "stop_ids": [2]},
    }
    request = {"kind": kind, "form": form, "backend": backend}
    answer = helper.ask("form", request, seconds=60, loads=loads)
    return answer["backend"], answer["error"]


CANNOT_COMPILE = ("no text can keep to it", "cannot compile it", "cannot follow it")
"""Refusals of what vLLM lets pass: the engine then fails on it, or answers with nothing."""


@pytest.mark.parametrize("backend", ["auto", "xgrammar", "guidance"])
@pytest.mark.parametrize(
    ("kind", "forms"),
    [("json", SCHEMAS), ("regex", REGEXES), ("grammar", GRAMMARS), ("choice", CHOICES)],
    ids=["json", "regex", "grammar", "choice"],
)
def test_forms(kind: str, forms: list[Any], backend: str, tokenizer: Any, helper: Helper) -> None:
    differences = []
    for form in forms:
        theirs = vllm_verdict(kind, form, backend, tokenizer)
        ours, error = our_verdict(kind, form, backend, helper)
        stricter = (
            theirs not in (None, "outlines") and error is not None and any(x in error for x in CANNOT_COMPILE)
        )
        expected = None if theirs == "outlines" else theirs
        # A broken EBNF grammar is one of another kind to llguidance, with another meaning: it is refused.
        stricter |= kind == "grammar" and "::=" in form and theirs == "guidance" and ours is None
        if ours != expected and not stricter:
            differences.append((form, theirs, ours, error))
    assert differences == []


@pytest.fixture(scope="module")
def model_config() -> Any:
    from vllm.config import ModelConfig

    return ModelConfig(model=str(MODEL), max_model_len=CONTEXT)


def vllm_refuses(steps: Callable[[], None]) -> str | None:
    """What the server says to a request that goes through these steps; none if it takes it."""
    from pydantic import ValidationError
    from vllm.exceptions import VLLMValidationError

    try:
        steps()
    except (ValidationError, VLLMValidationError, ValueError) as error:
        return str(error)
    return None


def admit_completion(body: dict[str, Any], model_config: Any, tokenizer: Any) -> None:
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest

    request = CompletionRequest(**body)
    prompt: Any = request.prompt
    several = isinstance(prompt, list) and isinstance(prompt[0], str | list)
    for each in prompt if several else [prompt]:
        admit(request, each, request.max_tokens, model_config, tokenizer)


def admit(request: Any, prompt: Any, limit: int | None, model_config: Any, tokenizer: Any) -> None:
    """The server's steps from a prompt to what it sends the engine core."""
    from vllm.entrypoints.serve.utils.api_utils import get_max_tokens
    from vllm.renderers.base import BaseRenderer
    from vllm.v1.engine.input_processor import InputProcessor

    params = request.build_tok_params(model_config)
    if isinstance(prompt, str):
        text = params.apply_pre_tokenization(tokenizer, {"prompt": prompt})["prompt"]
        prompt = tokenizer(text, **params.get_encode_kwargs())["input_ids"]
    prompt = params.apply_post_tokenization(tokenizer, {"prompt_token_ids": prompt})["prompt_token_ids"]
    most = get_max_tokens(model_config.max_model_len, limit, len(prompt), {})
    request.to_sampling_params(most, {}).verify(model_config, None, None, tokenizer)
    renderer: Any = SimpleNamespace(tokenizer=tokenizer, model_config=model_config)
    renderer.validate_token_ids = lambda ids: BaseRenderer.validate_token_ids(renderer, ids)
    processor: Any = SimpleNamespace(
        skip_prompt_length_check=False,
        supports_mm_inputs=False,
        mm_encoder_cache_size=0,
        model_config=model_config,
        renderer=renderer,
    )
    processor._validate_prompt_len = lambda *given: InputProcessor._validate_prompt_len(processor, *given)
    InputProcessor._validate_model_input(processor, {"type": "token", "prompt_token_ids": prompt}, "decoder")


def words(tokens: int) -> str:
    return " whatever" * tokens


@pytest.fixture(scope="module")
def preflight() -> Iterator[ModelPreflight]:
    settings = PreflightSettings(context=CONTEXT, vocab_size=VOCABULARY)
    with ModelPreflight(MODEL, settings) as preflight:
        yield preflight


LIMITS: list[dict[str, Any]] = [
    {}, {"max_tokens": None}, *({"max_tokens": limit} for limit in (1, 2, 3, 63, 64, 65, 10**6)),
    {"max_tokens": 0, "echo": True}, {"n": 3}, {"n": 3, "max_tokens": 10, "temperature": 1.0},
]  # fmt: skip
PROMPTS: list[Any] = [
    *(words(count) for count in (1, 61, 62, 63, 64, 65, 500)),
    *([5] * count for count in (1, 62, 63, 64, 65)),
    [words(3), words(63)], [words(3), words(64)], [[1, 2], [3] * 63], [[1, 2], [3] * 64],
    "", [""], ["a", ""], None, [49151], [49152], [[1], [49152]], [0],
]  # fmt: skip


@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_completions(
    limit: dict[str, Any], model_config: Any, tokenizer: Any, preflight: ModelPreflight
) -> None:
    differences = []
    for prompt in PROMPTS:
        item = {"prompt": prompt, **limit}
        theirs = vllm_refuses(lambda: admit_completion(item, model_config, tokenizer))  # noqa: B023
        ours = preflight.check("completion", item, len(orjson.dumps(item)))
        if (theirs is None) != (ours is None):
            differences.append((prompt, theirs, ours))
    assert differences == []


def test_ids_and_biases(model_config: Any, tokenizer: Any, preflight: ModelPreflight) -> None:
    differences = []
    given: list[dict[str, Any]] = [
        {"stop_token_ids": [0, 49151]}, {"stop_token_ids": [49152]}, {"stop_token_ids": [-1]},
        {"stop_token_ids": []}, {"logit_bias": {"5": 1.0}}, {"logit_bias": {"49152": 1.0}},
        {"logit_bias": {"-1": 1.0}}, {"logit_bias": {"word": 1.0}}, {"logit_bias": {" 7 ": 1.0}},
        {"logit_bias": {"1_0": 1.0}}, {"logit_bias": {"1.0": 1.0}}, {"logit_bias": {"": 1.0}},
    ]  # fmt: skip
    for fields in given:
        item = {"prompt": "a", **fields}
        theirs = vllm_refuses(lambda: admit_completion(item, model_config, tokenizer))  # noqa: B023
        ours = preflight.check("completion", item, 50)
        if (theirs is None) != (ours is None):
            differences.append((fields, theirs, ours))
    assert differences == []


AS_TEXT = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}"
    "{% if m.reasoning %}{{ m.reasoning }}{% endif %}{% if m.name %}({{ m.name }}){% endif %}"
    "{{ eos_token }}\n{% endfor %}"
    "{% if tools %}{{ tools | tojson(indent=2) }}{% endif %}"
    "{% if documents %}{{ documents | tojson }}{% endif %}"
    "{% if reasoning_effort is defined and reasoning_effort %}effort {{ reasoning_effort }}{% endif %}"
    "{% if enable_thinking is defined %}thinking {{ enable_thinking }}{% endif %}"
    "{{ extra | default('none') }}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
AS_PARTS = (
    "{% for message in messages %}{{ message['role'] }}: {% for part in message['content'] %}"
    "{{ part['type'] }}={{ part['text'] }};{% endfor %}\n{% endfor %}{% generation %}x{% endgeneration %}"
)
KNOWS_DEVELOPER = AS_TEXT + "{% if messages[0].role == 'developer' %}!{% endif %}"
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
USER = {"role": "user", "content": "How are you?"}
CHATS: list[dict[str, Any]] = [
    {"messages": [USER]},
    {"messages": [USER], "add_generation_prompt": False},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": text} for text in "ab"]}]},
    {"messages": [{"role": "system", "content": "Be brief."}, {**USER, "name": "Ann"}]},
    {"messages": [{"role": "developer", "content": "Be brief."}, USER]},
    {"messages": [{"role": "system", "content": "S"}, {"role": "developer", "content": "D"}, USER]},
    {"messages": [USER, {"role": "developer", "content": [{"type": "text", "text": "D"}]}]},
    {"messages": [USER, {"role": "assistant", "content": "Fine, and"}], "continue_final_message": True,
     "add_generation_prompt": False},
    {"messages": [USER, {"role": "assistant", "content": "Fine  "}], "continue_final_message": True,
     "add_generation_prompt": False},
    {"messages": [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]},
                  {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "42"}]}],
     "tools": [TOOL], "tool_choice": "none"},
    {"messages": [USER, {"role": "assistant", "content": "hm", "reasoning": "because"}]},
    {"messages": [USER], "documents": [{"title": "t", "text": "x"}]},
    {"messages": [USER], "reasoning_effort": "low"},
    {"messages": [USER], "reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": False}},
    {"messages": [USER], "chat_template_kwargs": {"extra": "<b>", "unused": 1, "bos_token": "BOS"}},
    {"messages": [USER, {"role": "assistant", "content": "x", "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": "not JSON"}}]}]},
]  # fmt: skip


@pytest.mark.parametrize(
    "template", [None, AS_TEXT, AS_PARTS, KNOWS_DEVELOPER], ids=["own", "text", "parts", "dev"]
)
def test_rendered_chats(template: str | None, model_config: Any, tokenizer: Any) -> None:
    text = template or (MODEL / "chat_template.jinja").read_text()
    differences = []
    for body in CHATS:
        theirs = vllm_prompt({"model": "m", **copy.deepcopy(body)}, template, model_config, tokenizer)
        ours = render(text, body, read_model_folder(MODEL, PreflightSettings()).special_tokens, 10**6)
        if theirs != ours:
            differences.append((body, theirs, ours))
    assert differences == []


def vllm_prompt(body: dict[str, Any], template: str | None, model_config: Any, tokenizer: Any) -> str:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.renderers.chat_utils import parse_chat_messages
    from vllm.renderers.hf import resolve_chat_template_content_format, safe_apply_chat_template

    request = ChatCompletionRequest(**body)
    tools = [tool.model_dump() for tool in request.tools] if request.tools else None
    params = request.build_chat_params(template, "auto").with_defaults({"tools": tools, "tokenize": False})
    form = resolve_chat_template_content_format(
        params.chat_template, tools, "auto", tokenizer, model_config=model_config
    )
    conversation, _, _ = parse_chat_messages(request.messages, model_config, content_format=form)
    prompt: str = safe_apply_chat_template(
        model_config, tokenizer, conversation, **params.get_apply_chat_template_kwargs()
    )
    return prompt


@pytest.mark.parametrize("tokens", [62, 63, 64, 65])
@pytest.mark.parametrize(
    "limits",
    [
        {}, {"max_tokens": 64}, {"max_tokens": 65}, {"max_completion_tokens": 65},
        {"max_tokens": 65, "max_completion_tokens": 5}, {"max_tokens": 5, "max_completion_tokens": 65},
        {"max_tokens": 65, "max_completion_tokens": None},
    ],
    ids=str,
)  # fmt: skip
def test_lengths_of_chats(
    tokens: int, limits: dict[str, Any], model_config: Any, tokenizer: Any, preflight: ModelPreflight
) -> None:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    around = len(
        tokenizer(vllm_prompt({"messages": [system("")]}, None, model_config, tokenizer))["input_ids"]
    )
    item = {"messages": [system(words(tokens - around))], **limits}
    prompt = vllm_prompt(copy.deepcopy(item), None, model_config, tokenizer)
    assert len(tokenizer(prompt)["input_ids"]) == tokens
    request = ChatCompletionRequest(**copy.deepcopy(item))
    most = request.max_completion_tokens if request.max_completion_tokens is not None else request.max_tokens
    theirs = vllm_refuses(lambda: admit(request, prompt, most, model_config, tokenizer))
    ours = preflight.check("chat", item, len(orjson.dumps(item)))
    assert (theirs is None) == (ours is None), (theirs, ours)


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


@pytest.mark.parametrize(
    ("kind", "form", "why"),
    [
        ("regex", "((a{1,100}){1,100}){1,100}", "repetitions within repetitions"),
        ("regex", "([a-z]{1,30} ?){1,50}", "repetitions within repetitions"),
        ("regex", "[a-y]{1,12}|#([a-z]{1,100} ?){1,200}", "repetitions within repetitions"),
        ("regex", "a?" * 2000, "took more than 6 s"),
        ("json", {"enum": [f"value {at}" for at in range(50_000)]}, "took more than 6 s"),
        (
            "json",
            {"type": "object", "properties": {f"p{at}": STRING for at in range(5000)}},
            "took more than 6 s",
        ),
        (
            "json",
            {"type": "array", "items": {"type": "integer", "multipleOf": 2}, "maxItems": 10**12},
            "SIGABRT; it may take 4 GiB",
        ),
    ],
    ids=[
        "nested repetitions",
        "slow repetitions",
        "hidden ones",
        "2000 optionals",
        "50,000 values",
        "5,000 keys",
        "memory",
    ],
)
def test_what_passes_vllm_but_would_stop_or_kill_it(kind: str, form: Any, why: str) -> None:
    field = {"regex": "guided_regex", "json": "guided_json"}[kind]
    settings = PreflightSettings(vocab_size=VOCABULARY, compile_sec=6.0)
    with ModelPreflight(MODEL, settings) as preflight:
        error = preflight.check("completion", {"prompt": "a", field: form}, 100)
        assert error is not None
        assert error.message.startswith(f"{field}: cannot be used")
        assert why in error.message
        assert preflight.check("completion", {"prompt": "a", field: form}, 100) == error
        assert preflight.check("completion", {"prompt": "a", "guided_regex": "[0-9]+"}, 100) is None

"""The table: what becomes of each field of each kind of item.

A field of the contract that stands in no table fails a test, and so does one that `docs/fields.md` lacks.
"""

from typing import Final

from batch_pipelines.translation import chats, forms, sampling, tools
from batch_pipelines.translation.draft import (
    FieldRule,
    emulated,
    no_effect,
    passed,
    refused,
    send_unless,
    translated,
)

__all__ = ["CHAT_FIELDS", "COMPLETION_FIELDS", "V1_FIELDS"]

_GUIDED = "Sent as `structured_outputs.{}`; at most one field may set the form of the text."
_IN_RECORD = "Accepted and without effect; the record carries it."
_HIDDEN = "Accepted and without effect; the job's warnings count the items that set it."

_SHARED: Final[dict[str, FieldRule]] = {
    "best_of": emulated(
        "`best_of` answers are sampled and ranked by mean log probability per token, and the best `n` are "
        "returned; usage counts all of them. In a beam search it is the number of beams. Without randomness "
        "all would be the same, and it changes nothing.",
        sampling.best_of,
    ),
    "top_k": passed("", sampling.top_k),
    "min_p": passed(),
    "use_beam_search": passed(
        "Refused together with a field that the engine's search does not look at: stop strings and tokens, "
        "penalties, `top_k`, `top_p`, `min_p`, `logit_bias`, `min_tokens`, a form of the text, tools. The "
        "search is not random, so `temperature` and `seed` change nothing.",
        sampling.beam_search,
    ),
    "length_penalty": passed(
        "From -50 to 50, and only with `use_beam_search`. The engine counts the prompt as length too.",
        sampling.length_penalty,
    ),
    "repetition_penalty": passed("Refused unless above 0.", sampling.positive),
    "early_stopping": FieldRule(
        "refused",
        sampling.early_stopping,
        "True is refused: the engine searches on to the token limit. False and `never` ask for just that.",
    ),
    "stop_token_ids": passed("Refused where an id is not in the vocabulary."),
    "include_stop_str_in_output": passed(),
    "ignore_eos": passed(),
    "min_tokens": passed(
        "Refused if more than may be generated, or with a form of the text, which may end sooner.",
        sampling.min_tokens,
    ),
    "skip_special_tokens": passed(),
    "spaces_between_special_tokens": passed(),
    "add_special_tokens": passed(),
    "response_format": passed(
        "Text, any JSON object, or JSON of a schema. A schema is always kept to, whatever `strict` says; one "
        "the engine cannot compile is refused.",
        forms.response_format,
    ),
    **{name: translated(_GUIDED.format(new), forms.guided) for name, new in forms.GUIDED.items()},
    "guided_decoding_backend": translated(
        "`auto`, `xgrammar` or `guidance`. One library enforces all forms of a job, so all items that name "
        "one must name the same; without a name the first item that needs one decides. Others are refused, "
        "since what they compile cannot be tried beforehand.",
        forms.guided_backend,
    ),
    "guided_whitespace_pattern": emulated(
        "The engine has no such setting: `guided_json` is sent as a regular expression with this space. "
        "Refused unless all properties are required and the expression can keep to every keyword.",
        forms.guided_whitespace,
    ),
    "model": no_effect("The job's model answers every item; the job's warnings count the items that set it."),
    "frequency_penalty": passed(),
    "logit_bias": passed("Refused where a token id is no number or not in the vocabulary."),
    "max_tokens": passed(
        "Refused if 0 (but for a completion with `echo`) or more than the context. Where it does not fit "
        "beside the prompt the answer ends earlier, with the finish reason `length`.",
        sampling.token_limit("max_tokens"),
    ),
    "n": passed(
        "The engine gives one answer only where nothing is random (`temperature` 0); it is copied.",
        sampling.n,
    ),
    "presence_penalty": passed(),
    "seed": passed("-1 is refused: the engine takes it for no seed.", sampling.seed),
    "stop": passed("At most 4 strings, none of them empty.", sampling.stop()),
    "stream": no_effect("A batch answers whole; the job's warnings count the items that set it."),
    "stream_options": no_effect("A batch answers whole."),
    "temperature": passed(),
    "top_p": passed("0 is sent as `top_k` 1, which is what it means.", sampling.top_p),
    "user": no_effect(_IN_RECORD),
}

COMPLETION_FIELDS: Final[dict[str, FieldRule]] = {
    **_SHARED,
    "prompt": passed(
        "One item, whatever it holds: with several prompts the record has the choices of all, in order. "
        "Refused if it is empty or does not fit the context."
    ),
    "echo": passed(),
    "logprobs": passed("True is sent as 1.", sampling.completion_logprobs),
    "suffix": refused("is not supported; put what the model fills in into the prompt", ""),
}

CHAT_FIELDS: Final[dict[str, FieldRule]] = {
    **_SHARED,
    "messages": passed(
        "Text, refusals, and images where the model takes them; other parts are refused. Nulls are left out, "
        "and `function` messages become `tool` messages.",
        chats.messages,
    ),
    "max_completion_tokens": passed("", sampling.token_limit("max_completion_tokens")),
    "logprobs": passed("", sampling.chat_logprobs),
    "top_logprobs": passed("Refused without `logprobs`.", sampling.top_logprobs),
    "echo": passed("The log probabilities of the prompt come with it only if `logprobs` is set.", chats.echo),
    "add_generation_prompt": passed("", chats.add_generation_prompt),
    "continue_final_message": translated(
        "Sent with `add_generation_prompt` false, which the engine would else have true.",
        chats.continue_final_message,
    ),
    "documents": passed(
        "Refused where a value is not a string. The job's warnings tell if the template does not use them.",
        chats.documents,
    ),
    "chat_template": passed(
        "Compiled and rendered in a sandbox first, with a time limit; the engine is then told to trust it."
    ),
    "chat_template_kwargs": passed("The job's warnings tell if the chat template does not use them."),
    "priority": passed(
        "Lower goes first; the engine schedules by priority if any item sets one.", send_unless(0)
    ),
    "metadata": no_effect(_IN_RECORD),
    "service_tier": no_effect(_IN_RECORD + " The engine has a key of that name, so it lies within `item`."),
    "modalities": refused("text is the only kind of output supported", [], ["text"]),
    "reasoning_effort": passed("The job's warnings tell if the chat template does not use it."),
    "web_search_options": refused("the engine cannot search the web"),
    "audio": refused("the engine cannot speak"),
    "store": no_effect(_IN_RECORD),
    "prediction": no_effect(_HIDDEN),
    "tools": passed(
        "Where a call is forced, a tool counts as `strict` unless it says otherwise, so that arguments keep "
        "to their schema.",
        tools.tools,
    ),
    "tool_choice": passed(
        "`auto`, also when unset, needs `model_config.tool_call_parser`; a forced call needs nothing.",
        tools.tool_choice,
    ),
    "parallel_tool_calls": passed("", tools.parallel_tool_calls),
    "function_call": translated("Sent as `tool_choice`.", tools.function_call),
    "functions": translated(
        "Sent as `tools` of which one may be called; the call comes back as `function_call`.", tools.functions
    ),
}

V1_FIELDS: Final[dict[str, FieldRule]] = {
    "max_new_tokens": translated("Sent as `max_tokens`.", sampling.token_limit("max_tokens")),
    "temperature": passed(),
    "stop_sequences": translated("Sent as `stop`: at most 4 strings, none of them empty.", sampling.stop()),
    "return_token_log_probs": translated(
        "Gives `tokens`: one entry for each generated token, with its log probability.",
        sampling.token_log_probs,
    ),
    "presence_penalty": passed(),
    "frequency_penalty": passed(),
    "top_k": passed(),
    "top_p": passed(),
    "skip_special_tokens": passed(),
}

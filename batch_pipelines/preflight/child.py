"""The helper process: tries what could hang or kill the process that tries it.

    python -P -m batch_pipelines.preflight.child

It reads one JSON object a line from its standard input and answers each with one on its standard output.
Every request names its `op`, the `seconds` it may take, after which the kernel ends the process, and, unless
it loads something, the `memory` it may take beyond what the process has. The other side is in `helper`.
"""

import os
import resource
import select
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import orjson

from batch_pipelines.preflight.grammars import Grammars
from batch_pipelines.preflight.tokens import Tokens

__all__ = ["main"]

_LOOK_FOR_PARENT_SEC: Final = 5.0
_GRACE_SEC: Final = 2.0
"""The other side keeps the time too; this end of it is for when that is gone."""

_HEAD: Final = 8
"""Characters a token of typical text has at most: so many of a text are counted first."""
_CUT: Final = 16
"""Tokens that a cut through a text may add."""

Request = Mapping[str, Any]
Answer = dict[str, Any]


class _Workshop:
    """What has been loaded, and what is done with it."""

    def __init__(self) -> None:
        self._tokens: Tokens | None = None
        self._eos: int | None = None
        self._grammars: Grammars | str = "no libraries are loaded"
        self.operations: Mapping[str, Callable[[Request], Answer]] = {
            "load_tokenizer": self._load_tokenizer,
            "load_grammars": self._load_grammars,
            "form": self._form,
            "count": self._count,
            "variables": self._variables,
            "render": self._render,
        }

    def _load_tokenizer(self, request: Request) -> Answer:
        try:
            self._tokens = Tokens(Path(request["file"]))
        except Exception as error:  # the library raises this very type
            return {"error": f"{request['file']} cannot be loaded: {error}"}
        self._eos = self._tokens.id_of(request["eos"])
        return {}

    def _load_grammars(self, request: Request) -> Answer:
        try:
            stop_ids = tuple(request["stop_ids"]) or ((self._eos,) if self._eos is not None else ())
            self._grammars = Grammars(self._tokens, request["vocab_size"], stop_ids)
        except ImportError as error:
            self._grammars = str(error)
        return {}

    def _form(self, request: Request) -> Answer:
        if isinstance(self._grammars, str):
            return {"unjudged": self._grammars}
        return asdict(self._grammars.judge(request["kind"], request["form"], request["backend"]))

    def _count(self, request: Request) -> Answer:
        return {"tokens": [self._tokens_of(text, request) for text in request["texts"]]}

    def _variables(self, request: Request) -> Answer:
        from batch_pipelines.preflight.rendering import TemplateFails, variables

        try:
            return {"variables": sorted(variables(request["template"]))}
        except TemplateFails as failure:
            return {"error": str(failure)}

    def _render(self, request: Request) -> Answer:
        from batch_pipelines.preflight.rendering import TemplateFails, render

        try:
            prompt = render(
                request["template"], request["chat"], request["special_tokens"], request["characters"]
            )
        except TemplateFails as failure:
            return {"error": str(failure)}
        if not prompt:
            return {"error": "renders to nothing"}
        return {"tokens": self._tokens_of(prompt, request) if request["enough"] is not None else None}

    def _tokens_of(self, text: str, request: Request) -> int | None:
        """Tokens of a text; of one that has more than `enough` for sure, maybe only a part of them."""
        if self._tokens is None:
            return None
        special, enough = request["special"], request["enough"]
        least = -(-len(text) // self._tokens.longest)
        if least > enough:
            return least
        head = text[: enough * _HEAD]
        if len(head) < len(text):
            of_head = self._tokens.count(head, special=special)
            if of_head > enough + _CUT:
                return of_head
        return self._tokens.count(text, special=special)


def main() -> None:
    """Answer requests until the other side is gone."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    # What a library prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    workshop = _Workshop()
    parent = os.getppid()
    while os.getppid() == parent:
        if not select.select([0], [], [], _LOOK_FOR_PARENT_SEC)[0]:
            continue
        line = sys.stdin.buffer.readline()
        if not line:
            return
        request = orjson.loads(line)
        signal.setitimer(signal.ITIMER_REAL, request["seconds"] + _GRACE_SEC)
        _limit_memory(request.get("memory"))
        answer = workshop.operations[request["op"]](request)
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE))
        answers.flush()


def _limit_memory(more: int | None) -> None:
    """Let the process take that much more address space; without a number, any amount."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    soft = hard
    if more is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        soft = pages * resource.getpagesize() + more
        soft = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


if __name__ == "__main__":
    main()

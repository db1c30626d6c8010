"""The program that runs a model's code inside the sandbox; it is no module of this process.

It is handed to the sandbox's Python as text, with the limits as its argument and the code on its standard
input, so it must not import from this project and must suit every Python since 3.8. What it prints first is
`ready`; whatever comes after that is the code's.
"""

from __future__ import annotations

import ast
import json
import linecache
import os
import resource
import site
import sys
import traceback
import types

_FRAMES = 5  # of a traceback, the innermost
_TRACEBACK_CHARS = 4000


def main() -> None:
    """Run the code that is on standard input."""
    setup = json.loads(sys.argv[1])
    with os.fdopen(0, "rb", closefd=False) as stream:
        task = json.load(stream)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    for folder in setup["packages"]:
        site.addsitedir(folder)
    os.nice(setup["niceness"])
    for name, value in setup["limits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))
    os.write(1, b"ready\n")
    sys.argv[:] = ["code.py"]
    sys.modules["__main__"] = module = types.ModuleType("__main__")
    try:
        if task["before"]:
            _run_in_silence(task["before"], nothing, module)
        _run(task["code"], "<code>", module, show_value=True)
    except SystemExit:
        raise
    except BaseException as error:
        _report(error)
        sys.exit(1)


def _run_in_silence(blocks: list[str], nothing: int, module: types.ModuleType) -> None:
    kept = [os.dup(1), os.dup(2)]
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    try:
        for number, block in enumerate(blocks, 1):
            try:
                _run(block, f"<earlier code {number}>", module, show_value=False)
            except SystemExit:
                continue
    finally:
        for target, descriptor in enumerate(kept, 1):
            os.dup2(descriptor, target)
            os.close(descriptor)


def _run(source: str, name: str, module: types.ModuleType, *, show_value: bool) -> None:
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    statements = ast.parse(source, name).body
    last = statements.pop() if show_value and statements and isinstance(statements[-1], ast.Expr) else None
    exec(compile(ast.Module(statements, []), name, "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    if isinstance(last, ast.Expr):
        shown = ast.Interactive([last])  # prints the value, as at a prompt
        exec(compile(shown, name, "single", dont_inherit=True), module.__dict__)  # noqa: S102


def _report(error: BaseException) -> None:
    trace = error.__traceback__
    while trace is not None and not trace.tb_frame.f_code.co_filename.startswith(("<code>", "<earlier")):
        trace = trace.tb_next  # this program's own frames
    lines = traceback.format_exception(type(error), error, trace, limit=-_FRAMES)
    text = "".join(lines)[-_TRACEBACK_CHARS:]
    with os.fdopen(2, "wb", closefd=False) as stream:
        stream.write(text.encode("utf-8", "backslashreplace"))


if __name__ == "__main__":
    main()

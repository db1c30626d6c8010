"""A failed start is told by the line of the log that says why."""

import pytest

from batch_pipelines.engines.vllm_server import describe_failure

CORE = "(EngineCore pid=7) ERROR 11-30 09:00:00 [core.py:1] "


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (
            [f"{CORE}RuntimeError: out of memory", "RuntimeError: Engine core initialization failed."],
            "out of memory",
        ),
        (["Traceback (most recent call last):", "OSError: no config.json"], "OSError: no config.json"),
        (
            [
                "(APIServer pid=7) pydantic_core.ValidationError: 1 validation error for ModelConfig",
                "(APIServer pid=7)   Value error, User-specified max_model_len (99) is too long",
                "(APIServer pid=7)     For further information visit somewhere",
            ],
            "1 validation error for ModelConfig Value error, User-specified max_model_len (99) is too long",
        ),
    ],
)
def test_first_line_names_the_cause(log: list[str], reason: str) -> None:
    first = describe_failure("the engine exited", log).splitlines()[0]
    assert first.startswith("the engine exited: ")
    assert reason in first


def test_engine_that_printed_nothing_is_told_so() -> None:
    assert describe_failure("the engine exited", []) == "the engine exited\nIt printed nothing."

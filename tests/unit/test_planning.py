"""A plan: what a request would take, what would be refused, and that nothing is touched."""

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from batch_pipelines.api.errors import FieldError
from batch_pipelines.api.items import ItemKind
from batch_pipelines.api.output import ItemError
from batch_pipelines.api.parse import parse_request
from batch_pipelines.api.request import CreateBatchCompletionsV2Request
from batch_pipelines.hardware.gpus import load_table
from batch_pipelines.inputs.reader import InputStream, RawItem
from batch_pipelines.planning import Deployment, ModelSeen, Plan, plan_request
from batch_pipelines.preflight.protocol import NoPreflight
from batch_pipelines.stages.count import count_items
from batch_pipelines.stages.validate import EngineFindings, Policy
from tests.support import model_configs as known
from tests.support.hardware import facts_of
from tests.support.jobs import chat, write_input

LLAMA = ModelSeen("/models/llama", facts_of(known.LLAMA_3_8B))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "store").mkdir()
    return tmp_path


POLICY = Policy(allow_trust_remote_code=False, max_inline_bytes=1000, enforces_hardware=True)


def deployment(folder: Path, *, gpus_available: bool = True, policy: Policy = POLICY) -> Deployment:
    return Deployment(
        store=(folder / "store").as_uri(),
        roots=((folder / "data").as_uri(),),
        policy=policy,
        max_item_bytes=1000,
        table=load_table(),
        gpus_available=gpus_available,
    )


def request_for(
    folder: Path, config: dict[str, Any] | None = None, **fields: Any
) -> CreateBatchCompletionsV2Request:
    body = {
        "output_data_path": str(folder / "data" / "out.json"),
        "model_config": {"model": "llama", **(config or {})},
        **fields,
    }
    if "content" not in fields:
        body.setdefault("input_data_path", str(folder / "data" / "input.jsonl"))
    return parse_request(body)


def make_plan(
    folder: Path, request: CreateBatchCompletionsV2Request, policy: Policy = POLICY, **changes: Any
) -> Plan:
    settings: dict[str, Any] = {
        "look": lambda _: LLAMA,
        "check_engine": lambda _: EngineFindings(),
        "open_preflight": lambda _: NoPreflight(),
        **changes,
    }
    return plan_request(request, deployment(folder, policy=policy), **settings)


def everything_in(folder: Path) -> list[tuple[Path, float]]:
    return [(path, path.stat().st_mtime_ns) for path in sorted(folder.rglob("*"))]


def test_a_good_request_is_weighed_and_nothing_is_touched(folder: Path) -> None:
    write_input(folder, [chat("hello", max_tokens=10), chat("you", max_tokens=5)])
    before = everything_in(folder)
    plan = make_plan(folder, request_for(folder, data_parallelism=3))
    assert plan.errors == ()
    assert plan.hardware is not None
    assert plan.hardware.gpu_type == "nvidia-ampere-a100"
    assert (plan.pods, plan.total_gpus) == (3, 3)
    assert plan.items is not None
    assert (plan.items.kind, plan.items.items, plan.items.refused) == ("chat", 2, 0)
    assert plan.items.estimated_tokens > 15
    assert everything_in(folder) == before


def test_pods_are_replicas_times_nodes(folder: Path) -> None:
    write_input(folder, [chat("hello")])
    many = ModelSeen("", facts_of(known.LLAMA_31_405B))
    plan = make_plan(folder, request_for(folder, data_parallelism=2), look=lambda _: many)
    assert (plan.pods, plan.total_gpus) == (4, 32)


def test_refused_items_are_counted_and_the_first_ten_shown(folder: Path) -> None:
    bad = [chat("x", temperature=9)] * 12
    write_input(folder, [chat("good"), b"{broken", *bad, chat("z" * 2000), {"prompt": "other kind"}])
    found = make_plan(folder, request_for(folder)).items
    assert found is not None
    assert (found.items, found.refused, len(found.first_refused)) == (16, 15, 10)
    first, second = found.first_refused[:2]
    assert (first.index, first.line, first.field) == (1, 2, None)
    assert "not valid JSON" in first.message
    assert (second.index, second.line, second.field) == (2, 3, "temperature")


def test_items_are_checked_against_the_model(folder: Path) -> None:
    write_input(folder, [chat("short"), chat("x" * 200)])

    class ShortOnly(NoPreflight):
        """Refuses what is long."""

        def check(self, kind: ItemKind, item: Any, size: int) -> ItemError | None:
            assert kind == "chat"
            assert size == len(orjson.dumps(item))
            too_long = ItemError(message="too long", type="BadRequestError", param="messages", code=400)
            return too_long if size > 200 else None

    found = make_plan(folder, request_for(folder), open_preflight=lambda _: ShortOnly()).items
    assert found is not None
    assert [(each.index, each.field) for each in found.first_refused] == [(1, "messages")]


def test_an_item_that_a_check_refuses_does_not_set_the_kind_of_the_others() -> None:
    lines = [b'{"prompt": "p"}', b'{"messages": [{"role": "user", "content": "c"}]}']
    stream = InputStream(None, (RawItem(i, i + 1, line, None) for i, line in enumerate(lines)))
    refused = ItemError(message="no", type="BadRequestError", param="prompt", code=400)
    count = count_items(
        stream, lambda kind, _item, _size: refused if kind == "completion" else None, NoPreflight()
    )
    assert (count.kind, count.refused) == ("chat", 1)


def test_inline_and_v1_content_are_counted(folder: Path) -> None:
    inline = make_plan(folder, request_for(folder, content=[chat("hello")])).items
    assert inline is not None
    assert (inline.kind, inline.items) == ("chat", 1)
    v1 = {"prompts": ["a", "b"], "max_new_tokens": 4, "temperature": 0}
    (folder / "data" / "input.jsonl").write_bytes(orjson.dumps(v1))
    from_file = make_plan(folder, request_for(folder)).items
    assert from_file is not None
    assert (from_file.kind, from_file.items) == ("v1", 2)


def test_v1_fields_beside_the_prompts_are_checked(folder: Path) -> None:
    v1 = {"prompts": ["a"], "max_new_tokens": 4, "temperature": 7}
    (folder / "data" / "input.jsonl").write_bytes(orjson.dumps(v1))
    plan = make_plan(folder, request_for(folder))
    assert plan.items is None
    assert [error.pointer for error in plan.errors] == ["/input_data_path"]
    assert "temperature" in plan.errors[0].message


def test_everything_wrong_with_the_request_is_told_at_once(folder: Path) -> None:
    request = request_for(
        folder,
        {"trust_remote_code": True, "tensor_parallel_size": 5},
        output_data_path="/etc/out.json",
        cpus="lots",
        gpus=16,
    )

    refusal = EngineFindings([FieldError("/model_config", "the engine says no")])
    plan = make_plan(folder, request, check_engine=lambda _: refusal)
    assert {error.pointer for error in plan.errors} == {
        "/model_config/trust_remote_code",
        "/output_data_path",
        "/input_data_path",
        "/model_config",
        "/cpus",
        "/gpus",
        "/model_config/tensor_parallel_size",
    }
    assert plan.hardware is None
    assert plan.items is None


def test_items_are_counted_although_no_hardware_fits(folder: Path) -> None:
    write_input(folder, [chat("hello")])
    plan = make_plan(folder, request_for(folder, gpus=16))
    assert plan.items is not None
    assert plan.items.items == 1
    assert plan.model == LLAMA


def test_input_that_is_none_is_an_error_of_its_path(folder: Path) -> None:
    (folder / "data" / "input.jsonl").write_text("")
    errors = make_plan(folder, request_for(folder)).errors
    assert [error.pointer for error in errors] == ["/input_data_path"]
    assert "empty" in errors[0].message


@pytest.mark.parametrize(
    ("config", "pointer"),
    [({}, "/model_config/model"), ({"checkpoint_path": "{data}/x"}, "/model_config/checkpoint_path")],
)
def test_model_that_cannot_be_had_is_told_where_it_was_named(
    folder: Path, config: dict[str, Any], pointer: str
) -> None:
    write_input(folder, [chat("hello")])

    def look(_: CreateBatchCompletionsV2Request) -> ModelSeen:
        raise ValueError("no such model")

    inside = {name: value.format(data=folder / "data") for name, value in config.items()}
    plan = make_plan(folder, request_for(folder, inside), look=look)
    assert FieldError(pointer, "no such model") in plan.errors
    assert plan.model is None


def test_warnings_of_the_engine_and_of_the_items_are_passed_on(folder: Path) -> None:
    write_input(folder, [chat("hello", stream=True)])
    plan = make_plan(
        folder,
        request_for(folder, {"no_such_setting": 1}),
        check_engine=lambda _: EngineFindings(warnings=["from the engine"]),
    )
    assert "no_such_setting" in plan.warnings[0]
    assert plan.warnings[1] == "from the engine"
    assert "`stream` has no effect" in plan.warnings[-1]


def test_hardware_that_cannot_be_is_an_error_only_where_it_is_looked_at(folder: Path) -> None:
    write_input(folder, [chat("hello")])
    request = request_for(folder, gpus=100)
    assert make_plan(folder, request).errors
    lax = make_plan(folder, request, replace(POLICY, enforces_hardware=False))
    assert lax.errors == ()
    assert any("does not look at it" in warning for warning in lax.warnings)


def test_memory_does_not_grow_with_the_input() -> None:
    def items(count: int) -> Iterator[RawItem]:
        return (RawItem(index, index + 1, b'{"prompt": 3}', None) for index in range(count))

    def peak(count: int) -> int:
        tracemalloc.start()
        try:
            counted = count_items(
                InputStream(None, items(count)), lambda _kind, _item, _size: None, NoPreflight()
            )
            assert counted.refused == count
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(100)  # what is made once
    assert peak(5000) < peak(500) + 20_000

"""`VLLMServer` against a stand-in server: starting, dying, restarting, ending."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import orjson
import pytest

from batch_pipelines.api.model_config import BatchCompletionsModelConfig
from batch_pipelines.engines.protocol import (
    Engine,
    EngineDied,
    EngineReply,
    EngineRequest,
    EngineSpec,
    EngineStartError,
)
from batch_pipelines.engines.vllm_server import VLLMServer
from tests.support import stand_in_server
from tests.support.processes import gone, pids_in, wait_until

COMMAND = (sys.executable, stand_in_server.__file__)


class Setup:
    """Makes servers and keeps what they log."""

    def __init__(self, folder: Path) -> None:
        self.log: list[str] = []
        self.pids = folder / "pids"

    def server(
        self,
        environment: Mapping[str, str] | None = None,
        *,
        log: Callable[[str], None] | None = None,
        model_config: BatchCompletionsModelConfig | None = None,
        **options: float,
    ) -> VLLMServer:
        spec = EngineSpec(
            model="/models/tiny",
            served_model_name="tiny",
            model_config=model_config or BatchCompletionsModelConfig(model="tiny", max_num_seqs=8),
            environment={"STAND_IN_PIDS": str(self.pids), **(environment or {})},
            log=log or self.log.append,
        )
        return VLLMServer(spec, command=COMMAND, **{"start_timeout_sec": 60.0, "grace_sec": 5.0, **options})


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setup]:
    """Sockets go to a folder of the test's own, so that what is left behind can be seen."""
    short = Path(tempfile.mkdtemp(dir="/tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    made = Setup(tmp_path)
    yield made
    left = [
        pid for pid in (made.pids.read_text().split() if made.pids.exists() else []) if not gone(int(pid))
    ]
    for pid in left:
        os.kill(int(pid), signal.SIGKILL)
    assert not left, "processes were left behind"
    assert not list(short.iterdir()), "files were left behind"
    short.rmdir()


def ask(prompt: str) -> EngineRequest:
    return EngineRequest("/v1/completions", orjson.dumps({"prompt": prompt}))


def answer(reply: EngineReply) -> dict[str, object]:
    assert reply.status == 200, reply
    parsed = orjson.loads(reply.body)
    assert isinstance(parsed, dict)
    return parsed


def test_server_is_an_engine(setup: Setup) -> None:
    server = setup.server()
    assert isinstance(server, Engine)
    assert server.max_in_flight == 16


def test_start_answer_stop(setup: Setup) -> None:
    async def run() -> None:
        server = setup.server()
        await server.start()
        first = answer(await server.send(ask("hello")))
        await server.start()  # nothing happens
        assert answer(await server.send(ask("hello")))["pid"] == first["pid"]
        await server.stop()
        await server.stop()
        with pytest.raises(EngineDied, match="not running"):
            await server.send(ask("hello"))

    asyncio.run(run())
    assert "listening" in setup.log
    assert len(pids_in(setup.pids, 2)) == 2


def test_arguments_are_single_elements_behind_the_socket(setup: Setup) -> None:
    config = BatchCompletionsModelConfig(model="tiny", tokenizer="--trust-remote-code", swap_space=4.0)

    async def run() -> list[str]:
        server = setup.server(model_config=config)
        await server.start()
        arguments = answer(await server.send(ask("hello")))["arguments"]
        await server.stop()
        assert isinstance(arguments, list)
        return arguments

    arguments = asyncio.run(run())
    assert arguments[0].startswith("--uds=/tmp/")
    assert "--model=/models/tiny" in arguments
    assert "--served-model-name=tiny" in arguments
    assert "--tokenizer=--trust-remote-code" in arguments
    assert "--trust-remote-code" not in arguments
    assert any("swap_space has no effect" in line for line in setup.log)


def test_server_sees_no_secret_of_ours(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_POSTGRES_PASSWORD", "secret")
    monkeypatch.setenv("HF_TOKEN", "for the hub")

    async def run() -> dict[str, object]:
        server = setup.server()
        await server.start()
        environment = answer(await server.send(EngineRequest("/environment", b"{}")))
        await server.stop()
        return environment

    environment = asyncio.run(run())
    assert "secret" not in environment.values()
    assert environment["HF_TOKEN"] == "for the hub"
    assert environment["VLLM_NO_USAGE_STATS"] == "1"


def test_crash_at_the_start_tells_the_cause_first_and_the_last_lines(setup: Setup) -> None:
    async def run() -> str:
        server = setup.server({"STAND_IN": "crash"})
        with pytest.raises(EngineStartError) as error:
            await server.start()
        return str(error.value)

    began = time.monotonic()
    lines = asyncio.run(run()).splitlines()
    assert time.monotonic() - began < 15
    assert "exited with code 3" in lines[0]
    assert lines[0].endswith("ValueError: no room for the KV cache")
    assert lines[1] == "The last 40 lines of its log:"
    assert len(lines) == 42
    assert lines[-1].startswith("RuntimeError: Engine core initialization failed")
    assert "(APIServer pid=1) INFO loading part 99" in lines


def test_crash_without_a_word_says_so(setup: Setup) -> None:
    async def run() -> None:
        with pytest.raises(EngineStartError, match=r"(?s)code 9.*printed nothing"):
            await setup.server({"STAND_IN": "mute crash"}).start()

    asyncio.run(run())


def test_command_that_cannot_run_is_a_start_error(setup: Setup) -> None:
    spec = EngineSpec("/m", "m", BatchCompletionsModelConfig(model="m"), log=setup.log.append)

    async def run() -> None:
        with pytest.raises(EngineStartError, match=r"code 127.*\n.*\n.*cannot start /no/such/program"):
            await VLLMServer(spec, command=["/no/such/program"]).start()

    asyncio.run(run())


def test_argument_that_cannot_be_passed_is_a_start_error(setup: Setup) -> None:
    config = BatchCompletionsModelConfig(model="tiny", dtype="a\0b")

    async def run() -> None:
        with pytest.raises(EngineStartError, match="null byte"):
            await setup.server(model_config=config).start()

    asyncio.run(run())


def test_server_that_never_answers_is_given_up_and_ended(setup: Setup) -> None:
    async def run() -> None:
        with pytest.raises(EngineStartError, match="did not answer within 2 s"):
            await setup.server({"STAND_IN": "never healthy"}, start_timeout_sec=2.0).start()

    asyncio.run(run())
    assert all(gone(pid) for pid in pids_in(setup.pids, 2))


def test_cancelled_start_leaves_nothing(setup: Setup) -> None:
    async def run() -> None:
        server = setup.server({"STAND_IN": "never healthy"})
        starting = asyncio.create_task(server.start())
        await asyncio.to_thread(pids_in, setup.pids, 2)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    asyncio.run(run())
    assert all(gone(pid) for pid in pids_in(setup.pids, 2))


def test_death_in_mid_request_fails_all_in_flight_and_restart_works(setup: Setup) -> None:
    async def run() -> None:
        server = setup.server()
        await server.start()
        hanging = [asyncio.create_task(server.send(ask("hang"))) for _ in range(5)]
        first = answer(await server.send(ask("hello")))["pid"]
        results = await asyncio.gather(server.send(ask("exit")), *hanging, return_exceptions=True)
        assert [type(result) for result in results] == [EngineDied] * 6
        with pytest.raises(EngineDied):
            await server.send(ask("hello"))
        await server.start()
        assert answer(await server.send(ask("hello")))["pid"] != first
        await server.stop()

    asyncio.run(run())
    assert len(pids_in(setup.pids, 4)) == 4


def test_kill_9_of_the_main_process_takes_its_helper_along(setup: Setup) -> None:
    async def run() -> None:
        server = setup.server()
        await server.start()
        main, helper = pids_in(setup.pids, 2)
        hanging = asyncio.create_task(server.send(ask("hang")))
        await server.send(ask("hello"))
        os.kill(main, signal.SIGKILL)
        with pytest.raises(EngineDied):
            await hanging
        await asyncio.to_thread(wait_until, lambda: gone(helper))
        await server.stop()

    asyncio.run(run())


def test_kill_9_of_the_reaper_takes_the_engine_along(setup: Setup) -> None:
    async def run() -> None:
        server = setup.server()
        await server.start()
        main, helper = pids_in(setup.pids, 2)
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        await asyncio.to_thread(wait_until, lambda: gone(main))
        with pytest.raises(EngineDied):
            await server.send(ask("hello"))
        await server.stop()
        # A helper that left the session is out of reach once the reaper is gone; one in the group is not.
        os.kill(helper, signal.SIGKILL)
        await asyncio.to_thread(wait_until, lambda: gone(helper))

    asyncio.run(run())


def test_server_error_with_a_dead_core_is_a_death(setup: Setup) -> None:
    async def run() -> None:
        server = setup.server()
        await server.start()
        assert (await server.send(ask("error 500"))).status == 500
        with pytest.raises(EngineDied, match="answered 500 and is not healthy"):
            await server.send(ask("core gone"))
        await server.start()
        answer(await server.send(ask("hello")))
        await server.stop()

    asyncio.run(run())


def test_one_reset_is_tried_again_and_a_second_is_a_death(setup: Setup) -> None:
    async def run() -> None:
        server = setup.server()
        await server.start()
        answer(await server.send(ask("reset 1")))
        with pytest.raises(EngineDied, match="the engine died"):
            await server.send(ask("reset 3"))
        await server.stop()

    asyncio.run(run())


def test_burst_beyond_the_sockets_queue_is_answered(setup: Setup) -> None:
    async def run() -> None:
        server = setup.server({"STAND_IN_BACKLOG": "8"})
        await server.start()
        replies = await asyncio.gather(*(server.send(ask("hello")) for _ in range(300)))
        assert {reply.status for reply in replies} == {200}
        await server.stop()

    asyncio.run(run())


def test_stubborn_server_is_killed_after_the_grace(setup: Setup) -> None:
    async def run() -> None:
        server = setup.server({"STAND_IN": "stubborn"}, grace_sec=1.0)
        await server.start()
        began = time.monotonic()
        await server.stop()
        assert 1.0 <= time.monotonic() - began < 6.0

    asyncio.run(run())


def test_stop_fails_what_is_in_flight(setup: Setup) -> None:
    async def run() -> None:
        server = setup.server()
        await server.start()
        hanging = asyncio.create_task(server.send(ask("hang")))
        await server.send(ask("hello"))
        await server.stop()
        with pytest.raises(EngineDied):
            await hanging

    asyncio.run(run())


def test_cancelled_stop_still_ends_everything(setup: Setup) -> None:
    async def run() -> None:
        server = setup.server({"STAND_IN": "stubborn"}, grace_sec=0.5)
        await server.start()
        stopping = asyncio.create_task(server.stop())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        main, helper = pids_in(setup.pids, 2)
        await asyncio.to_thread(wait_until, lambda: gone(main) and gone(helper))
        await server.stop()

    asyncio.run(run())


def test_works_on_a_loop_in_another_thread(setup: Setup) -> None:
    async def run() -> None:
        server = setup.server()
        await server.start()
        with pytest.raises(EngineDied):
            await server.send(ask("exit"))
        await server.start()
        answer(await server.send(ask("hello")))
        await server.stop()

    failures: list[BaseException] = []

    def body() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert not failures


def test_log_that_blocks_does_not_hold_up_the_server(setup: Setup) -> None:
    release = threading.Event()

    def block(_line: str) -> None:
        release.wait(60)

    async def run() -> None:
        server = setup.server(log=block)
        await server.start()
        answer(await server.send(ask("hello")))
        release.set()
        await server.stop()

    asyncio.run(run())


def test_log_that_fails_does_not_hold_up_the_server(setup: Setup) -> None:
    seen: list[str] = []

    def fail(line: str) -> None:
        seen.append(line)
        raise RuntimeError("the log is away")

    async def run() -> None:
        server = setup.server(log=fail)
        await server.start()
        await server.stop()

    asyncio.run(run())
    assert "listening" in seen


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_death_of_our_own_process_leaves_nothing(setup: Setup, number: signal.Signals) -> None:
    script = (
        "import asyncio\n"
        "from batch_pipelines.api.model_config import BatchCompletionsModelConfig\n"
        "from batch_pipelines.engines.protocol import EngineSpec\n"
        "from batch_pipelines.engines.vllm_server import VLLMServer\n"
        "async def main():\n"
        f"    environment = {{'STAND_IN_PIDS': {str(setup.pids)!r}}}\n"
        "    spec = EngineSpec('m', 'm', BatchCompletionsModelConfig(model='m'), environment=environment)\n"
        f"    await VLLMServer(spec, command={COMMAND!r}).start()\n"
        "    print('started', flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    environment = {**os.environ, "TMPDIR": tempfile.gettempdir(), "PYTHONPATH": str(Path.cwd())}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        wait_until(lambda: b"started" in (process.stdout.readline() if process.stdout else b""))
        family = pids_in(setup.pids, 2)
        process.send_signal(number)
    wait_until(lambda: all(gone(pid) for pid in family))
    wait_until(lambda: not list(Path(tempfile.gettempdir()).iterdir()))

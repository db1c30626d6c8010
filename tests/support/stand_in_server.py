"""A tiny server that takes vLLM's arguments, for tests of how a server's process is handled.

It is run as a script. `STAND_IN` in its environment names an oddity: `crash` and `mute crash` fail at the
start, `never healthy` does not answer, `stubborn` ignores SIGTERM. It has a helper process in a session of
its own; both ids go to the file `STAND_IN_PIDS`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from aiohttp import web

_ODDITY = os.environ.get("STAND_IN", "")
_STATE = {"healthy": True, "resets": 0}


async def _health(_request: web.Request) -> web.Response:
    return web.Response(status=200 if _STATE["healthy"] and _ODDITY != "never healthy" else 503)


async def _answer(request: web.Request) -> web.StreamResponse:
    prompt = (await request.json())["prompt"]
    if prompt == "exit":
        os._exit(7)
    if prompt == "hang":
        await asyncio.sleep(600)
    if prompt == "core gone":
        _STATE["healthy"] = False
        return web.json_response({"error": {"code": 500}}, status=500)
    if prompt == "error 500":
        return web.json_response({"error": {"code": 500}}, status=500)
    if prompt.startswith("reset") and _STATE["resets"] < int(prompt.removeprefix("reset ")):
        _STATE["resets"] += 1
        assert request.transport is not None
        request.transport.abort()
    return web.json_response({"pid": os.getpid(), "path": request.path, "arguments": sys.argv[1:]})


async def _environment(_request: web.Request) -> web.Response:
    return web.json_response(dict(os.environ))


async def _serve(socket: str, backlog: int) -> None:
    app = web.Application()
    app.router.add_get("/health", _health)
    app.router.add_post("/v1/completions", _answer)
    app.router.add_post("/environment", _environment)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, socket, backlog=backlog).start()
    print("listening", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    """Serve until told to end."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--uds", required=True)
    known, _ = parser.parse_known_args()
    if _ODDITY == "mute crash":
        raise SystemExit(9)
    if _ODDITY == "crash":
        for number in range(100):
            print(f"(APIServer pid=1) INFO loading part {number}", flush=True)
        print(
            "(EngineCore pid=2) ERROR 11-30 08:00:00 [core.py:1] ValueError: no room for the KV cache",
            flush=True,
        )
        print(
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
        )
        raise SystemExit(3)
    if _ODDITY == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    pids = os.environ.get("STAND_IN_PIDS")
    if pids:
        with Path(pids).open("a") as file:
            file.write(f"{os.getpid()}\n{helper.pid}\n")
    print(json.dumps({"main": os.getpid(), "helper": helper.pid}), flush=True)
    asyncio.run(_serve(known.uds, int(os.environ.get("STAND_IN_BACKLOG", "128"))))


if __name__ == "__main__":
    main()

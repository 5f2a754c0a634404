"""The whole front over fake engines: HTTP, guards, dialects, supervisor; only the worker command is replaced.

`fake_server` runs it as a process, for signals and crashes; `fake_app` gives the application on the test's own loop.
Both take settings as keyword arguments (fields of `Settings`; n_ctx and parallel reach the engines) and model names
that decide what the engines do.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
from collections.abc import AsyncGenerator, Generator, Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from jan_serve.api.app import create_app
from jan_serve.api.server import run
from jan_serve.cli.server.head_start import HeadStart
from jan_serve.config import Settings
from jan_serve.helpers.kinds import COMPILING, DECODING
from jan_serve.helpers.pool import HelperPool
from jan_serve.ipc.messages import EngineSettings
from jan_serve.logs.log_lines import configure_logging
from jan_serve.supervisor.models.model_manager import ModelManager
from jan_serve.wiring.parts import ServerParts, manager_limits
from tests.support.engine.engines import FAKE_ENGINE, FakeResolver
from tests.support.helpers.compiling import translate_inline
from tests.support.helpers.rendering import render_inline
from tests.support.servers.served import Served, running

_ROOT = Path(__file__).resolve().parents[3]
_PATHS = [str(_ROOT), str(_ROOT / "app")]
_START = f"import sys; sys.path[:0] = {_PATHS}; from tests.support.servers.fake_server import main; main()"


@contextlib.contextmanager
def fake_server(folder: Path, names: Sequence[str] = ("fake",), **settings: Any) -> Generator[Served]:
    """A server process on a free port; killed at the end if it still runs."""
    arguments = json.dumps({"folder": str(folder), "names": list(names), "settings": settings})
    with running(folder, [sys.executable, "-c", _START, arguments]) as served:
        yield served


@contextlib.asynccontextmanager
async def fake_app(
    folder: Path, names: Sequence[str] = ("fake",), **settings: Any
) -> AsyncGenerator[tuple[FastAPI, ModelManager]]:
    """The application for an ASGI client, and its models, whose workers end with the block."""
    made, manager = build(folder, names, settings)
    try:
        yield create_app(made, manager, render_inline, translate_inline), manager
    finally:
        await manager.shutdown(0)


def build(folder: Path, names: Sequence[str], settings: dict[str, Any]) -> tuple[Settings, ModelManager]:
    """Settings from keyword arguments alone, and a manager over fake engines, made as wiring makes it."""
    made = Settings(data_dir=folder, **settings)
    engine = EngineSettings(n_ctx=made.n_ctx, parallel=made.parallel)
    return made, ModelManager(FakeResolver(folder, names, engine), FAKE_ENGINE, manager_limits(made))


def server_parts(settings: Settings, manager: ModelManager, started: HeadStart) -> ServerParts:
    """Those of a server without a library."""
    return ServerParts(settings, manager, started.renderer, HelperPool(COMPILING), HelperPool(DECODING))


def main() -> None:
    arguments = json.loads(sys.argv[1])
    settings, manager = build(Path(arguments["folder"]), arguments["names"], arguments["settings"])
    configure_logging(settings.log_level, as_json=settings.log_json)
    with socket.create_server((settings.host, 0), backlog=2048) as sock, HeadStart() as started:
        print(f"url http://{settings.host}:{sock.getsockname()[1]}", file=sys.stderr, flush=True)
        sys.exit(run(server_parts(settings, manager, started), [sock], started.runner))

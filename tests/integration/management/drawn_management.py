"""The management routes for drawn calls: their document, and a server in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

from jan_serve.api.app import create_app
from jan_serve.api.management.pulls import Management
from jan_serve.dialects.registry import DialectFactory
from jan_serve.store.library import ModelLibrary
from jan_serve.store.resolve import ModelResolver
from tests.integration.store.conftest import FILE, REPO, model_bytes
from tests.support.engine.fake_client import FakeModels
from tests.support.helpers.compiling import translate_inline
from tests.support.helpers.rendering import render_inline
from tests.support.servers.fake_hub import FakeRepo, running_hub
from tests.support.servers.fronts import make_settings
from tests.support.servers.managed import add_model, listening, managed_app


def document(*dialects: DialectFactory) -> dict[str, Any]:
    """The document of an application with these dialects; making it calls no route."""

    def nothing() -> Any:
        raise AssertionError("a route was called")

    nowhere = Path("nowhere")
    control: Any = FakeModels()
    management = Management(control, ModelLibrary(ModelResolver(nowhere), nowhere, nothing))
    application = create_app(
        make_settings(),
        FakeModels(),
        render_inline,
        translate_inline,
        dialects=dialects,
        management=management,
    )
    return application.openapi()


@contextlib.contextmanager
def serving_in_thread(folder: Path, *names: str) -> Generator[str]:
    """The URL of a server with models of these names, a broken file and a hub: drawn calls come from this thread."""
    ready, end = threading.Event(), asyncio.Event()
    address: list[str] = []

    async def serve(hub: str) -> None:
        async with managed_app(folder, hub=hub) as managed, listening(managed) as port:
            address.append(f"http://localhost:{port}")
            ready.set()
            await end.wait()

    for name in names:
        add_model(folder, name)
    add_model(folder, "broken", b"GGUF")
    with running_hub() as hub:
        hub.repos[REPO] = FakeRepo({FILE: model_bytes(1 << 16)})
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=lambda: loop.run_until_complete(serve(hub.url)))
        thread.start()
        try:
            assert ready.wait(30)
            yield address[0]
        finally:
            loop.call_soon_threadsafe(end.set)
            thread.join(60)
            assert not thread.is_alive()
            loop.close()

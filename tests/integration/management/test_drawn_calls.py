"""Calls drawn from the document of the management routes, over fake engines, a real folder and a hub on loopback.

Of every two names one is of a model that is there or can be had, so that loads, pulls and deletions really happen.
"""

from __future__ import annotations

import asyncio
import threading
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import pytest
import schemathesis

from jan_serve.api.app import create_app
from jan_serve.api.management import Management
from jan_serve.store.library import ModelLibrary
from jan_serve.store.resolve import ModelResolver
from tests.integration.store.conftest import FILE, REPO, model_bytes
from tests.support.compiling import InlineTranslator
from tests.support.drawn_calls import CHECKS, drawn
from tests.support.fake_client import FakeModels
from tests.support.fake_hub import FakeRepo, running_hub
from tests.support.fronts import make_settings
from tests.support.managed import add_model, listening, managed_app
from tests.support.raw_http import get
from tests.support.rendering import InlineRenderer

pytestmark = pytest.mark.integration

_LOADED: Final = ("a", "b", "fail-load", "broken")
_DELETED: Final = ("c", "same", "same.gguf", "org/same", f"{REPO}:Q8_0", "fail-load")
_ON_THE_HUB: Final = (f"{REPO}:Q8_0", f"{REPO}/{FILE}", REPO)
Fields: TypeAlias = dict[str, Any]
_PATHS: Final = frozenset({"/models", "/models/{name}", "/models/load", "/models/unload", "/models/pull"})

_SCHEMATHESIS: Any = schemathesis


def _document() -> dict[str, Any]:
    """The document of an application with these routes; making it calls none of them."""

    def nothing() -> Any:
        raise NotImplementedError

    nowhere = Path("nowhere")
    control: Any = FakeModels()
    management = Management(control, ModelLibrary(ModelResolver(nowhere), nowhere, nothing))
    application = create_app(
        make_settings(),
        FakeModels(),
        InlineRenderer(),
        InlineTranslator(),
        dialects=(),
        management=management,
    )
    return application.openapi()


_DRAWN: Final[Any] = _SCHEMATHESIS.openapi.from_dict(_document()).include(
    path_regex="^/models(/(load|unload|pull|{name}))?$"
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """A server in its own thread: drawn calls come from this one."""
    folder = tmp_path_factory.mktemp("drawn")
    ready, end = threading.Event(), asyncio.Event()
    address: list[str] = []

    async def serve(hub: str) -> None:
        async with managed_app(folder, hub=hub) as managed, listening(managed) as port:
            address.append(f"http://localhost:{port}")
            ready.set()
            await end.wait()

    for name in ("a", "b", "c", "org/same", "same", "fail-load"):
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


def _with_known_names(case: Any) -> None:
    """For every second call, chosen by the drawn values, so that a failing call fails again."""
    number = zlib.crc32(repr((case.body, case.query, case.path_parameters)).encode("utf-8", "surrogatepass"))
    if number % 2:
        return
    pulls = case.method == "POST" and case.path in ("/models", "/models/pull")
    names = _DELETED if case.method == "DELETE" else _ON_THE_HUB if pulls else _LOADED
    for place, name in ((case.body, "model"), (case.query, "model"), (case.path_parameters, "name")):
        if isinstance(place, dict) and isinstance(cast(Fields, place).get(name), str):
            fields = cast(Fields, place)
            fields[name] = names[number // 2 % len(names)]
            fields.pop("revision", None)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@_DRAWN.parametrize()
@drawn(25)
def test_no_documented_call_fails(url: str, case: Any) -> None:
    _with_known_names(case)
    case.call_and_validate(base_url=url, checks=CHECKS)


def test_every_route_of_models_is_drawn_but_those_that_never_end(url: str) -> None:
    paths = {path for path in get(url, "/openapi.json").json()["paths"] if path.startswith("/models")}
    assert paths == _PATHS | {"/models/sse"}
    assert {operation.ok().path for operation in _DRAWN.get_all_operations()} == _PATHS
    assert get(url, "/health").status == 200

"""Calls drawn from the document of the management routes, over fake engines, a real folder and a hub on loopback.

Of every two names one is of a model that is there or can be had, so that loads, pulls and deletions really happen.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator
from typing import Any, Final, TypeAlias, cast

import pytest
import schemathesis

from tests.integration.management.drawn_management import document, serving_in_thread
from tests.integration.store.conftest import FILE, REPO
from tests.support.clients.raw_http import get
from tests.support.drawn_calls import CHECKS, draw_calls

pytestmark = pytest.mark.integration

_LOADED: Final = ("a", "b", "fail-load", "broken")
_DELETED: Final = ("c", "same", "same.gguf", "org/same", f"{REPO}:Q8_0", "fail-load")
_ON_THE_HUB: Final = (f"{REPO}:Q8_0", f"{REPO}/{FILE}", REPO)
Fields: TypeAlias = dict[str, Any]
_PATHS: Final = frozenset(
    {"/models", "/models/{name}", "/models/load", "/models/unload", "/models/pull", "/models/import"}
)

_SCHEMATHESIS: Any = schemathesis


@pytest.fixture(scope="module")
def operations() -> Any:
    return _SCHEMATHESIS.openapi.from_dict(document()).include(
        path_regex="^/models(/(load|unload|pull|import|{name}))?$"
    )


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    folder = tmp_path_factory.mktemp("drawn")
    with serving_in_thread(folder, "a", "b", "c", "org/same", "same", "fail-load") as address:
        yield address


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


@pytest.mark.drawn
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_no_documented_call_fails(url: str, operations: Any, subtests: pytest.Subtests) -> None:
    def answer(case: Any) -> None:
        _with_known_names(case)
        case.call_and_validate(base_url=url, checks=CHECKS)

    draw_calls(operations, 10, subtests, answer)


def test_every_route_of_models_is_drawn_but_those_that_never_end(url: str, operations: Any) -> None:
    paths = {path for path in get(url, "/openapi.json").json()["paths"] if path.startswith("/models")}
    assert paths == _PATHS | {"/models/sse"}
    assert {operation.ok().path for operation in operations.get_all_operations()} == _PATHS
    assert get(url, "/health").status == 200

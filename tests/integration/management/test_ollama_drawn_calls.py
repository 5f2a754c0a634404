"""Calls drawn from the document of Ollama's and LM Studio's routes, over fake engines, a real folder and a hub.

Names are those of models that think, have no template, embed, fill gaps, fail to load or are broken files.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator
from typing import Any, Final, cast

import pytest
import schemathesis

from jan_serve.dialects.registry import lmstudio_dialect, ollama_dialect
from tests.integration.management.drawn_management import document, serving_in_thread
from tests.integration.store.conftest import FILE, REPO
from tests.support.clients.raw_http import get
from tests.support.drawn_calls import CHECKS, draw_calls
from tests.support.servers.managed import add_model
from tests.unit.store.gguf_builder import GgufBytes, uint_key

pytestmark = pytest.mark.integration

_ASKED: Final = (
    "chat",
    "thinks:latest",
    "no-template",
    "embeds",
    "infills",
    "fail-load",
    "broken",
    "absent:1b",
)
_DELETED: Final = ("c", "org/same", "broken", "drawn", "absent")
_PULLED: Final = (f"hf.co/{REPO}:Q8_0", f"{REPO}/{FILE}", REPO, "absent")
_SCHEMATHESIS: Any = schemathesis


@pytest.fixture(scope="module")
def operations() -> Any:
    return _SCHEMATHESIS.openapi.from_dict(document(ollama_dialect, lmstudio_dialect)).include(
        path_regex="^/api/"
    )


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    folder = tmp_path_factory.mktemp("drawn")
    add_model(folder, "embeds", GgufBytes(keys=(uint_key("llama.pooling_type", 1),)).build())
    with serving_in_thread(
        folder, "chat", "thinks", "no-template", "infills", "fail-load", "c", "org/same"
    ) as address:
        yield address


def _with_known_names(case: Any) -> None:
    """For most calls, chosen by the drawn values, so that a failing call fails again."""
    number = zlib.crc32(repr((case.path, case.body)).encode("utf-8", "surrogatepass"))
    sent: object = case.body
    if number % 4 == 0 or not isinstance(sent, dict):
        return
    body = cast(dict[str, Any], sent)
    names = {"/api/delete": _DELETED, "/api/pull": _PULLED}.get(case.path, _ASKED)
    name = names[number // 4 % len(names)]
    if case.path == "/api/copy":
        body |= {"source": name, "destination": "drawn"}
    elif case.path == "/api/create":
        body |= {"model": "drawn", "from": name, "files": None}
    else:
        body["model"] = name


@pytest.mark.drawn
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_no_documented_call_fails(url: str, operations: Any, subtests: pytest.Subtests) -> None:
    def answer(case: Any) -> None:
        _with_known_names(case)
        case.call_and_validate(base_url=url, checks=CHECKS)

    draw_calls(operations, 6, subtests, answer)


def test_every_route_is_drawn(url: str, operations: Any) -> None:
    paths = {path for path in get(url, "/openapi.json").json()["paths"] if path.startswith("/api/")}
    assert {operation.ok().path for operation in operations.get_all_operations()} == paths
    assert len(paths) == 17
    assert get(url, "/health").status == 200

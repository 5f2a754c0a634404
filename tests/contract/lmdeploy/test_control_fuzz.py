"""Calls drawn from the document of the control plane's routes: no 5xx except the documented one."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI

from jan_serve.api.app import create_app
from jan_serve.dialects.lmdeploy.dialect import lmdeploy_dialect
from jan_serve.dialects.lmdeploy.outline import CONTROL_PATHS
from tests.support.drawn_calls import CHECKS, LIMIT_S, draw_calls
from tests.support.engine.fake_client import FakeModels
from tests.support.engine.fake_control import FakeControl
from tests.support.helpers.compiling import translate_inline
from tests.support.helpers.rendering import render_inline
from tests.support.servers.fronts import make_settings

_PATHS = "|".join(("/distserve/.*", *CONTROL_PATHS))


@pytest.fixture(scope="module")
def application() -> FastAPI:
    return create_app(
        make_settings(),
        FakeModels(),
        render_inline,
        translate_inline,
        control=FakeControl(),
        dialects=(lmdeploy_dialect,),
    )


@pytest.mark.drawn
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_no_documented_call_fails(application: FastAPI, subtests: pytest.Subtests) -> None:
    def answer(case: Any) -> None:
        case.headers["host"] = "localhost"
        case.call_and_validate(checks=CHECKS)

    document: Any = schemathesis.openapi.from_asgi(
        "/openapi.json", application, headers={"host": "localhost"}, timeout=LIMIT_S
    )
    draw_calls(document.include(path_regex=f"^({_PATHS})$"), 8, subtests, answer)


def test_the_routes_are_there(application: FastAPI) -> None:
    paths = application.openapi()["paths"]
    for path in (*CONTROL_PATHS, "/distserve/engine_info", "/distserve/p2p_connect"):
        assert path in paths and f"/lmdeploy{path}" in paths

"""Calls drawn from the document of the control plane's routes: no 5xx except the documented one."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis

from jan_serve.api.app import create_app
from jan_serve.api.dialects.lmdeploy.dialect import lmdeploy_dialect
from jan_serve.api.dialects.lmdeploy.paths import CONTROL_PATHS
from tests.support.compiling import translate_inline
from tests.support.drawn_calls import CHECKS, drawn
from tests.support.fake_client import FakeModels
from tests.support.fake_control import FakeControl
from tests.support.fronts import make_settings
from tests.support.rendering import render_inline

_CONTROL = FakeControl()
_APP = create_app(
    make_settings(),
    FakeModels(),
    render_inline,
    translate_inline,
    control=_CONTROL,
    dialects=(lmdeploy_dialect,),
)
_ALL: Any = schemathesis.openapi.from_asgi("/openapi.json", _APP, headers={"host": "localhost"})
_PATHS = "|".join(("/distserve/.*", *CONTROL_PATHS))
_DOCUMENT: Any = _ALL.include(path_regex=f"^({_PATHS})$")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@_DOCUMENT.parametrize()
@drawn(15)
def test_no_documented_call_fails(case: Any) -> None:
    case.headers["host"] = "localhost"
    case.call_and_validate(checks=CHECKS)


def test_the_routes_are_there() -> None:
    paths = _APP.openapi()["paths"]
    for path in (*CONTROL_PATHS, "/distserve/engine_info", "/distserve/p2p_connect"):
        assert path in paths and f"/lmdeploy{path}" in paths

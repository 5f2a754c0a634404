"""Calls drawn from the application's own OpenAPI document: no 5xx and no undocumented status may come."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis

from jan_serve.api.app import create_app
from tests.support.drawn_calls import CHECKS, drawn
from tests.support.fake_client import FakeModels
from tests.support.fronts import make_settings
from tests.support.rendering import InlineRenderer

_APP = create_app(make_settings(), FakeModels(), InlineRenderer())
_DOCUMENT: Any = schemathesis.openapi.from_asgi("/openapi.json", _APP, headers={"host": "localhost"})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@_DOCUMENT.parametrize()
@drawn(40)
def test_no_documented_call_fails(case: Any) -> None:
    case.headers["host"] = "localhost"
    case.call_and_validate(checks=CHECKS)

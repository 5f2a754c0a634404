"""Calls drawn from the application's own OpenAPI document: no 5xx and no undocumented status may come."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import checks
from schemathesis.specs.openapi import checks as openapi_checks

from jan_serve.api.app import create_app
from tests.support.fake_client import FakeModels
from tests.support.fronts import make_settings
from tests.support.rendering import InlineRenderer

_APP = create_app(make_settings(), FakeModels(), InlineRenderer())
_DOCUMENT: Any = schemathesis.openapi.from_asgi("/openapi.json", _APP, headers={"host": "localhost"})
_COMMON: Any = checks
_OPENAPI: Any = openapi_checks
_CHECKS: list[Any] = [
    _COMMON.not_a_server_error,
    _OPENAPI.status_code_conformance,
    _OPENAPI.content_type_conformance,
    _OPENAPI.response_schema_conformance,
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@_DOCUMENT.parametrize()
@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_no_documented_call_fails(case: Any) -> None:
    case.headers["host"] = "localhost"
    case.call_and_validate(checks=_CHECKS)

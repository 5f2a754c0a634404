"""Calls drawn from the application's own OpenAPI document: none may be answered with a 5xx or an undocumented status."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from jan_serve.api.app import create_app
from tests.support.fake_client import FakeModels
from tests.support.fronts import make_settings

_APP = create_app(make_settings(), FakeModels())
_DOCUMENT = schemathesis.openapi.from_asgi("/openapi.json", _APP, headers={"host": "localhost"})
_CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
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

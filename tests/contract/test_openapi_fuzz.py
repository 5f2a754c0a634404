"""Calls drawn from the application's own OpenAPI document: no 5xx and no undocumented status."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis

from tests.support.documented import application
from tests.support.drawn_calls import CHECKS, drawn

_DOCUMENT: Any = schemathesis.openapi.from_asgi("/openapi.json", application(), headers={"host": "localhost"})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@_DOCUMENT.parametrize()
@drawn(40)
def test_no_documented_call_fails(case: Any) -> None:
    case.headers["host"] = "localhost"
    case.call_and_validate(checks=CHECKS)

"""Calls drawn from the application's own OpenAPI document: no 5xx and no undocumented status."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis

from tests.support.documented import application
from tests.support.drawn_calls import CHECKS, LIMIT_S, draw_calls


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.timeout(3000)
def test_no_documented_call_fails(subtests: pytest.Subtests) -> None:
    def answer(case: Any) -> None:
        case.headers["host"] = "localhost"
        case.call_and_validate(checks=CHECKS)

    document: Any = schemathesis.openapi.from_asgi(
        "/openapi.json", application(), headers={"host": "localhost"}, timeout=LIMIT_S
    )
    # Calls at the bounds of the schemas, with TEST_DRAWS. test_schemathesis sends more of the others, to a real model.
    draw_calls(document, 2, subtests, answer, most=10)

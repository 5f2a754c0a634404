"""Shared parts of tests that draw calls from the API's document (schemathesis)."""

from __future__ import annotations

import os
from typing import Any, Final

import hypothesis
from hypothesis import HealthCheck
from schemathesis import checks
from schemathesis.specs.openapi import checks as openapi_checks

_COMMON: Final[Any] = checks
_OPENAPI: Final[Any] = openapi_checks

CHECKS: Final[list[Any]] = [
    _COMMON.not_a_server_error,
    _OPENAPI.status_code_conformance,
    _OPENAPI.content_type_conformance,
    _OPENAPI.response_headers_conformance,
    _OPENAPI.response_schema_conformance,
]
"""No 5xx, and no status, content type, header or body that the document does not name."""


def drawn(examples: int) -> hypothesis.settings:
    """The given number of calls per operation, the same in every run, without a time limit per call.

    TEST_DRAWS in the environment: that many everywhere.
    """
    return hypothesis.settings(
        max_examples=int(os.environ.get("TEST_DRAWS", examples)),
        deadline=None,
        derandomize=True,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.filter_too_much,
            HealthCheck.function_scoped_fixture,
        ],
    )

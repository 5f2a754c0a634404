"""What every test shares that draws calls from a document of the API (schemathesis)."""

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
    """As many calls of each operation, the same ones in every run, however long one takes.

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

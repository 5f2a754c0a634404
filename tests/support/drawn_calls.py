"""Shared parts of tests that draw calls from the API's document (schemathesis).

The calls are made while a test runs. Schemathesis's own decorator makes them when tests are collected, which takes ten
seconds of each process of a parallel run, whatever tests it runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

import hypothesis
import pytest
from hypothesis import HealthCheck
from schemathesis import GenerationMode, checks
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest import _test_builder
from schemathesis.python._constants import orchestrator
from schemathesis.specs.openapi import checks as openapi_checks

_BUILDER: Final[Any] = _test_builder
_CONSTANTS: Final[Any] = orchestrator
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


LIMIT_S: Final = 600.0
"""Seconds for a call, and for reading a document. Schemathesis's own, 10 s, is too short on a busy machine."""


def draw_calls(
    document: Any,
    examples: int,
    subtests: pytest.Subtests,
    answer: Callable[[Any], None],
    most: int | None = None,
) -> None:
    """Calls of each operation, which is a subtest, the same in every run. answer: sends a call and checks its answer.

    examples: that many draws for an operation. TEST_DRAWS in the environment: that many, or `most`, for an operation
    with a body, a sixth of them for others, and the calls at the bounds of the schemas as well, which are thousands;
    of operations with the same schemas, one gets the wrong ones of these.
    """
    document.config.update(request_timeout=LIMIT_S)
    if "TEST_DRAWS" not in os.environ:
        document.config.phases.update(phases=["examples", "fuzzing"])
    feedback = FeedbackSources(constants_value_source=_CONSTANTS.make_constants_value_source(document))
    schemas: set[str] = set()
    for found in document.get_all_operations():
        operation = found.ok()
        raw = operation.definition.raw
        schema = repr((operation.method, raw.get("parameters"), raw.get("requestBody")))
        modes = [GenerationMode.POSITIVE] + [GenerationMode.NEGATIVE] * (schema not in schemas)
        document.config.phases.coverage.generation.update(modes=modes)
        schemas.add(schema)

        @_settings(_draws(operation, examples, most))
        def one(case: Any) -> None:
            answer(case)

        with subtests.test(operation.label):
            _BUILDER.build_operation_test(
                config=document.config, operation=operation, test_func=one, given_kwargs={}, feedback=feedback
            )()


def _draws(operation: Any, examples: int, most: int | None) -> int:
    if "TEST_DRAWS" not in os.environ:
        return examples
    wanted = int(os.environ["TEST_DRAWS"])
    return max(examples, min(wanted, most or wanted) if operation.body else wanted // 6)


def _settings(examples: int) -> hypothesis.settings:
    return hypothesis.settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.filter_too_much,
            HealthCheck.function_scoped_fixture,
        ],
    )

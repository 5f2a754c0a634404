"""Calls drawn from a running server's OpenAPI document, against a real model: no 5xx, nothing undocumented."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import schemathesis

from tests.integration.http.support import Healthy, serving_models
from tests.support.clients.raw_http import get
from tests.support.documented import document
from tests.support.drawn_calls import CHECKS, draw_calls

pytestmark = pytest.mark.integration

_SCHEMATHESIS: Any = schemathesis


@pytest.fixture(scope="module")
def drawn_on(tmp_path_factory: pytest.TempPathFactory, exact_llama: Path) -> Generator[Healthy]:
    """A short context and a ceiling, so that calls which set no limit are short too."""
    flags = ("--n-ctx", "128", "--max-tokens-ceiling", "16")
    with serving_models(tmp_path_factory.mktemp("drawn"), exact_llama, flags=flags) as served:
        yield Healthy(served)


@pytest.mark.drawn
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.timeout(3000)
def test_no_documented_call_fails(drawn_on: Healthy, subtests: pytest.Subtests) -> None:
    operations = _SCHEMATHESIS.openapi.from_dict(document())
    # Calls at the bounds of schemas, thousands that are mostly rejected, are in tests/contract/long.
    operations.config.phases.update(phases=["examples", "fuzzing"])
    draw_calls(
        operations,
        2,
        subtests,
        lambda case: case.call_and_validate(base_url=drawn_on.url, checks=CHECKS),
    )


def test_the_server_gives_that_document(drawn_on: Healthy) -> None:
    """The other routes are not drawn: they delete models, download some, or never end."""
    served, drawn = get(drawn_on.url, "/openapi.json").json(), document()
    assert {path: served["paths"][path] for path in drawn["paths"]} == drawn["paths"]
    schemas = served["components"]["schemas"]
    assert {name: schemas[name] for name in drawn["components"]["schemas"]} == drawn["components"]["schemas"]
    assert {"/models", "/models/load", "/logs"} <= served["paths"].keys() - drawn["paths"].keys()


def test_the_server_is_as_before(drawn_on: Healthy) -> None:
    """Runs after the drawn calls; also passes on its own."""
    drawn_on.check()

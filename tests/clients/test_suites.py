"""Suites that others publish fail only where we differ by design, or where the built-in model is too weak."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.suites import LLAMA_CPP, PYTHON, SUITES, differs, run_suite
from tests.support.servers.served import serving

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not PYTHON.exists(), reason="the clients are not installed (scripts/install-clients)"),
]


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_fails_only_where_it_is_said(tmp_path: Path, name: str) -> None:
    with serving(tmp_path, "--port", "0") as server:
        outcome = run_suite(name, server.url())
    if outcome.skipped and not outcome.passed and not outcome.failed:
        pytest.skip("what it runs is not installed (make test-clients)")
    assert outcome.passed, outcome.output
    unexpected = [test for test in outcome.failed if differs()[name].reason(test) is None]
    assert unexpected == [], outcome.output


def test_each_suite_says_where_it_differs() -> None:
    assert {*SUITES, LLAMA_CPP} == differs().keys()

"""The public suites must not get worse: as many cases pass as in the baseline, and nothing invalid is accepted."""

from __future__ import annotations

import json

import pytest

from tests.conformance.report import BASELINE
from tests.conformance.scoring import CRASH, PASS, TIMEOUT, TOO_WIDE, score
from tests.conformance.suites import SHARED, SUITES, VOCABULARY, load_suite

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        not SHARED.is_dir(), reason="the reference folder with the suites is not beside the repository"
    ),
]


@pytest.mark.parametrize("suite", SUITES)
def test_suite_is_no_worse_than_its_baseline(suite: str) -> None:
    expected = json.loads(BASELINE.read_text(encoding="utf-8"))[suite]
    result = score(load_suite(suite, expected["every"]), VOCABULARY)
    assert result.named(TOO_WIDE, CRASH, TIMEOUT) == []
    assert len(result.outcomes) == expected["cases"]
    assert result.counts()[PASS] >= expected["pass"], "\n".join(
        result.named(*(set(result.counts()) - {PASS}))
    )

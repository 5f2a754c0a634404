"""A minute of `make chaos` with a few clients, the same in every run as far as time allows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if not sys.platform.startswith("linux"):
    pytest.skip("limits and mounts of Linux", allow_module_level=True)

from tests.chaos.client import End
from tests.chaos.run import chaos

pytestmark = [pytest.mark.anyio, pytest.mark.integration]


async def test_every_request_has_an_answer_or_one_error_and_nothing_is_left(tmp_path: Path) -> None:
    report = await chaos(tmp_path / "run", seed=3, seconds=60.0, clients=6, least_faults=15)
    assert report.findings == [], str(report)
    ends = {outcome.kind for outcome in report.outcomes}
    assert {End.ANSWER, End.ERROR} <= ends, str(report)
    assert len(report.faults) >= 15

"""A few deaths of workers under mixed clients: each request that was open ends whole, as if nothing had happened."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if not sys.platform.startswith("linux"):
    pytest.skip("the clients and faults of chaos need Linux", allow_module_level=True)

from tests.chaos.deaths import deaths, lengthened
from tests.chaos.questions import QUESTIONS, WRITER

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

KINDS = ("openai completion", "openai tools", "openai schema", "responses", "anthropic stream", "ollama chat")


async def test_requests_that_were_open_at_a_death_end_whole(tmp_path: Path) -> None:
    questions = [lengthened(each, 300) for each in QUESTIONS if each.name in KINDS and each.model == WRITER]
    report = await deaths(tmp_path / "run", 4, 2, 5, questions=questions, hangs=False)
    assert len(report.hit) > 1, str(report)
    assert report.share_whole == 1.0, str(report)
    assert not report.changed, str(report)

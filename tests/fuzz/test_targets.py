"""A few damaged inputs at each target, the same in every run; `make fuzz` takes many."""

from __future__ import annotations

import pytest

from tests.fuzz.__main__ import fuzz
from tests.fuzz.targets import TARGETS

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

FEWER = {"loads": 8, "hub": 12}
"""Inputs of targets that take half a second each."""


@pytest.mark.parametrize("name", TARGETS)
async def test_nothing_is_found(name: str) -> None:
    count = FEWER.get(name, 60)
    outcomes, findings = await fuzz(name, 300.0, seed=1, most=count)
    assert [f"{finding} (seed {finding.seed}): {finding.input[:200]!r}" for finding in findings] == []
    assert outcomes.total() == count
    assert len(outcomes) > 1, "damaged inputs end in more than one way"

"""The targets that a coverage-guided fuzzer follows, by random draws."""

from __future__ import annotations

import random

import pytest

from tests.fuzz.targets import GUIDED, TARGETS

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", [name for name in GUIDED if GUIDED[name] is not TARGETS[name]])
@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")  # of escapes in templates
async def test_outcomes_are_those_of_helper_processes(name: str) -> None:
    outcomes: list[list[str]] = []
    for target in (TARGETS[name], GUIDED[name]):
        async with target() as one:
            outcomes.append([await one(random.Random(f"2-{number}")) for number in range(5)])
    assert outcomes[0] == outcomes[1]

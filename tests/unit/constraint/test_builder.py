"""Names of rules under construction."""

from __future__ import annotations

import pytest

from jan_serve.constraint.builder import RuleBuilder
from jan_serve.constraint.limits import MAX_RULES
from jan_serve.errors import GrammarTooComplex


def test_the_number_of_rules_is_limited() -> None:
    rules = RuleBuilder()
    for number in range(MAX_RULES):
        rules.reserve(f"r{number}")
    with pytest.raises(GrammarTooComplex, match=str(MAX_RULES)):
        rules.reserve("one-more")

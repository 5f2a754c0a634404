"""Patterns that are refused: the error names the place and the reason."""

from __future__ import annotations

import pytest

from jan_serve.constraint.regex.language import search_regex
from jan_serve.errors import UnsupportedPattern


@pytest.mark.parametrize(
    ("pattern", "position"),
    [
        ("a(b", 1),
        ("a)", 1),
        ("^+[a-z]$", 1),
        ("a**", 2),
        ("[z-a]", 1),
        ("[a", 0),
        ("a{2,1}", 1),
        ("(a)\\1", 3),
        ("x(?<=x)a", 1),
        ("(?i)a", 0),
        ("(?P<n>a)", 0),
        ("a\\", 1),
        ("\\p{Nope}", 0),
        ("\\Aa", 0),
        ("((?!a)b)*c", 1),
        ("(" * 500, 101),
    ],
)
def test_refused_pattern_names_its_position(pattern: str, position: int) -> None:
    with pytest.raises(UnsupportedPattern) as caught:
        search_regex(pattern)
    assert caught.value.position == position
    assert caught.value.reason

"""The character classes against Python's Unicode database and ECMA-262's lists."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

import pytest

from jan_serve.constraint import charset
from jan_serve.constraint.regex.classes import DOT, SHORTHANDS, unicode_property
from tests.support.drawn_grid import some

SAMPLE = [*range(0x3100), *range(0xD7F0, 0xE010), *range(0xFE00, 0x10040), *range(0x1F5F0, 0x1F650), 0x10FFFF]


@pytest.mark.parametrize(
    ("name", "categories"),
    [
        ("Lu", {"Lu"}),
        ("Uppercase_Letter", {"Lu"}),
        ("L", {"Lu", "Ll", "Lt", "Lm", "Lo"}),
        ("LC", {"Lu", "Ll", "Lt"}),
        ("General_Category=Decimal_Number", {"Nd"}),
        ("gc=Sc", {"Sc"}),
        ("punct", {"Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po"}),
        ("Cs", {"Cs"}),
        ("Unassigned", {"Cn"}),
    ],
)
def test_a_general_category(name: str, categories: set[str]) -> None:
    chars = unicode_property(name)
    assert chars is not None
    assert chars == charset.char_set(chars)
    for code in some(SAMPLE, 3000):
        assert charset.contains(chars, code) is (unicodedata.category(chr(code)) in categories), hex(code)


def test_every_code_point_has_its_category() -> None:
    names = {category: unicode_property(category) for category in map(unicodedata.category, map(chr, SAMPLE))}
    ranges = sorted((*pair, name) for name, chars in names.items() if chars for pair in chars)
    assert ranges[0][0] == 0 and ranges[-1][1] == charset.MAX_CODE_POINT
    assert all(end + 1 == first for (_, end, _), (first, _, _) in pairwise(ranges))
    for first, end, name in ranges:
        assert {unicodedata.category(chr(code)) for code in range(first, end + 1)} == {name}


@pytest.mark.parametrize("name", ["Latin", "Script=Greek", "lu", "", "Emoji", "General_Category=Nope"])
def test_other_properties_are_unknown(name: str) -> None:
    assert unicode_property(name) is None


@pytest.mark.parametrize("shorthand", "dDwW")
def test_digits_and_words_are_ascii(shorthand: str) -> None:
    expected = re.compile(f"\\{shorthand}", re.ASCII)
    for code in SAMPLE:
        assert charset.contains(SHORTHANDS[shorthand], code) is bool(expected.match(chr(code))), hex(code)


def test_white_space_is_ecmas() -> None:
    """ECMA-262 12.2: tab, VT, FF, BOM and the category Zs; 12.3: the line terminators."""
    listed = {0x09, 0x0B, 0x0C, 0xFEFF, 0x0A, 0x0D, 0x2028, 0x2029}
    for code in SAMPLE:
        wanted = code in listed or unicodedata.category(chr(code)) == "Zs"
        assert charset.contains(SHORTHANDS["s"], code) is wanted, hex(code)
        assert charset.contains(SHORTHANDS["S"], code) is not wanted, hex(code)
        assert charset.contains(DOT, code) is (code not in {0x0A, 0x0D, 0x2028, 0x2029})

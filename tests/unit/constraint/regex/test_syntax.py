"""The character classes against Python's Unicode database and ECMA-262's lists."""

from __future__ import annotations

import re
import unicodedata

import pytest

from jan_serve.constraint import charset
from jan_serve.constraint.regex.language import regex_dfa, search_regex
from jan_serve.constraint.regex.syntax import DOT, SHORTHANDS, unicode_property
from scripts.unicode_properties import FILE
from tests.support.drawn_grid import some

SAMPLE = [*range(0x3100), *range(0xD7F0, 0xE010), *range(0xFE00, 0x10040), *range(0x1F5F0, 0x1F650), 0x10FFFF]


NAMES = [
    (kind, names.split(","))
    for kind, names, _ in (line.split("=") for line in FILE.read_text(encoding="utf-8").splitlines()[1:])
]


@pytest.mark.drawn
def test_each_code_point_has_one_general_category() -> None:
    """That of Python's database, where its older Unicode assigns one; a later one changed U+0295."""
    categories = {
        names[0]: unicode_property(names[0]) or ()
        for kind, names in NAMES
        if kind == "gc" and len(names[0]) == 2 and names[0] != "LC"
    }
    for code in {*some(SAMPLE, 2000), *range(0x7F)}:
        (found,) = (name for name, codes in categories.items() if charset.contains(codes, code))
        assert unicodedata.category(chr(code)) in {"Cn", found} or code == 0x295, hex(code)


@pytest.mark.parametrize("name", ["gc=L", "gc=LC", "gc=N", "gc=P", "gc=C", "gc=Z"])
def test_a_group_has_the_categories_that_begin_alike(name: str) -> None:
    parts = ("Lu", "Ll", "Lt") if name == "gc=LC" else (name[3:],)
    own = [
        unicode_property(names[0]) or ()
        for kind, names in NAMES
        if kind == "gc" and len(names[0]) == 2 and names[0] != "LC" and names[0].startswith(parts)
    ]
    assert unicode_property(name) == charset.union(*own)


@pytest.mark.parametrize("kind", ["gc", "", "sc", "scx"])
def test_every_name_is_a_property(kind: str) -> None:
    spellings = {"gc": ("", "gc=", "General_Category="), "sc": ("sc=", "Script="), "": ("",)}
    for names in (names for own, names in NAMES if own == kind):
        sets = {
            unicode_property(prefix + name)
            for name in names
            for prefix in spellings.get(kind, ("scx=", "Script_Extensions="))
        }
        (chars,) = sets
        assert chars == charset.char_set(chars or ())


@pytest.mark.parametrize(
    ("pattern", "fits", "others"),
    [
        (r"^\p{Script=Greek}+$", ("αβγ", "Ω"), ("a", "βa", "")),
        (r"^\p{sc=Cyrl}$", ("ж",), ("z",)),
        (r"^[\p{Alphabetic}_][\p{Alphabetic}\p{Nd}_]*$", ("é1", "_", "ⅷ", "ా"), ("1a", "-")),
        (r"^\P{Lowercase}+$", ("ABC1",), ("a", "ª")),
        (r"^\p{Emoji}{1,2}$", ("😀", "1"), ("x", "")),
        (r"^\p{scx=Deva}$", ("॥", "क"), ("a",)),
        (r"^\p{Script=Devanagari}$", ("क",), ("॥",)),
        (r"^\p{ID_Start}\p{IDC}*$", ("x1",), ("1x",)),
    ],
)
def test_properties_in_patterns(pattern: str, fits: tuple[str, ...], others: tuple[str, ...]) -> None:
    dfa = regex_dfa(search_regex(pattern))
    assert [text for text in (*fits, *others) if dfa.matches(text)] == [*fits]


@pytest.mark.parametrize(
    "name",
    [
        "Latin",
        "lu",
        "",
        "=",
        "=Lu",
        "Script=",
        "Script=Nope",
        "sc=Lu",
        "gc=Alphabetic",
        "gc=Greek",
        "x=Lu",
        "Ext_Pict",
    ],
)
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

"""The character classes of ECMA-262: `.`, `\\d`, `\\w`, `\\s` and Unicode general categories."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from itertools import pairwise

from jan_serve.constraint import charset
from jan_serve.constraint.charset import CharSet

LINE_TERMINATORS = charset.of_chars("\n\r\u2028\u2029")
DOT = charset.complement(LINE_TERMINATORS)
DIGIT: CharSet = ((0x30, 0x39),)
WORD: CharSet = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
# WhiteSpace and LineTerminator of ECMA-262, section 12.2 and 12.3.
SPACE: CharSet = (
    (0x09, 0x0D),
    (0x20, 0x20),
    (0xA0, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
    (0xFEFF, 0xFEFF),
)

SHORTHANDS: dict[str, CharSet] = {
    "d": DIGIT,
    "D": charset.complement(DIGIT),
    "w": WORD,
    "W": charset.complement(WORD),
    "s": SPACE,
    "S": charset.complement(SPACE),
}
CONTROL_ESCAPES = {"t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r"}

_CATEGORY_NAMES = {
    "Letter": "L",
    "Cased_Letter": "LC",
    "Uppercase_Letter": "Lu",
    "Lowercase_Letter": "Ll",
    "Titlecase_Letter": "Lt",
    "Modifier_Letter": "Lm",
    "Other_Letter": "Lo",
    "Mark": "M",
    "Combining_Mark": "M",
    "Nonspacing_Mark": "Mn",
    "Spacing_Mark": "Mc",
    "Enclosing_Mark": "Me",
    "Number": "N",
    "Decimal_Number": "Nd",
    "digit": "Nd",
    "Letter_Number": "Nl",
    "Other_Number": "No",
    "Punctuation": "P",
    "punct": "P",
    "Connector_Punctuation": "Pc",
    "Dash_Punctuation": "Pd",
    "Open_Punctuation": "Ps",
    "Close_Punctuation": "Pe",
    "Initial_Punctuation": "Pi",
    "Final_Punctuation": "Pf",
    "Other_Punctuation": "Po",
    "Symbol": "S",
    "Math_Symbol": "Sm",
    "Currency_Symbol": "Sc",
    "Modifier_Symbol": "Sk",
    "Other_Symbol": "So",
    "Separator": "Z",
    "Space_Separator": "Zs",
    "Line_Separator": "Zl",
    "Paragraph_Separator": "Zp",
    "Other": "C",
    "Control": "Cc",
    "cntrl": "Cc",
    "Format": "Cf",
    "Private_Use": "Co",
    "Unassigned": "Cn",
}
_CATEGORIES = frozenset(_CATEGORY_NAMES.values()) | {"Cs"}


@lru_cache(maxsize=64)
def unicode_property(name: str) -> CharSet | None:
    """The set of `\\p{name}`: general categories, `Any`, `ASCII`. None for a name that is not known here."""
    if name == "Any":
        return charset.ANY
    if name == "ASCII":
        return ((0, 0x7F),)
    for prefix in ("General_Category=", "gc="):
        name = name.removeprefix(prefix)
    short = _CATEGORY_NAMES.get(name, name)
    if short not in _CATEGORIES:
        return None
    wanted = ("Lu", "Ll", "Lt") if short == "LC" else (short,)
    found = (ranges for category, ranges in _by_category().items() if category.startswith(wanted))
    return charset.union(*found)


_UNASSIGNED = range(0x40000, 0xE0000)
"""Planes that Unicode leaves empty: more than half of all code points."""


@lru_cache(maxsize=1)
def _by_category() -> dict[str, CharSet]:
    """The code points of each general category by its short name. Takes about 50 ms."""
    found: dict[str, list[tuple[int, int]]] = {"Cn": []}
    for part in (range(_UNASSIGNED.start), range(_UNASSIGNED.stop, charset.MAX_CODE_POINT + 1)):
        categories = list(map(unicodedata.category, map(chr, part)))
        changes = [at for at, (a, b) in enumerate(pairwise(categories), 1) if a != b]
        for first, end in pairwise([0, *changes, len(part)]):
            found.setdefault(categories[first], []).append((part[first], part[end - 1]))
    found["Cn"].append((_UNASSIGNED.start, _UNASSIGNED.stop - 1))
    return {category: charset.char_set(ranges) for category, ranges in found.items()}

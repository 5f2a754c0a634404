"""The character classes of ECMA-262: `.`, `\\d`, `\\w`, `\\s` and properties of Unicode."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources

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

_KINDS = {
    "General_Category": ("gc",),
    "gc": ("gc",),
    "Script": ("sc",),
    "sc": ("sc",),
    "Script_Extensions": ("scx", "sc"),
    "scx": ("scx", "sc"),
}
"""Values by what is before the sign of equality; a script without extensions of its own has none in the file."""


@lru_cache(maxsize=64)
def unicode_property(name: str) -> CharSet | None:
    """The set of `\\p{name}`: all properties of ECMA-262. None for a name that is none."""
    kind, equals, value = name.rpartition("=")
    kinds = _KINDS.get(kind, ()) if equals else ("gc", "")
    ranges = next((found for own in kinds if (found := _properties().get((own, value))) is not None), None)
    return None if ranges is None else _code_points(ranges)


@lru_cache(maxsize=1)
def _properties() -> dict[tuple[str, str], str]:
    """The code points of each property as the file has them, by kind and name."""
    text = (
        resources.files("jan_serve.constraint.regex")
        .joinpath("unicode_properties.txt")
        .read_text(encoding="utf-8")
    )
    found: dict[tuple[str, str], str] = {}
    for line in text.splitlines()[1:]:
        kind, names, ranges = line.split("=")
        found.update(((kind, name), ranges) for name in names.split(","))
    return found


def _code_points(ranges: str) -> CharSet:
    """The set that a line of the file describes."""
    found: list[tuple[int, int]] = []
    end = 0
    for part in ranges.split():
        gap, _, more = part.partition("+")
        first = end + int(gap, 36)
        end = first + int(more or "0", 36) + 1
        found.append((first, end - 1))
    return tuple(found)

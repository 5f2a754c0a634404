"""What TGI's framework says of a body that does not fit: the path, the reason and the place, in serde's words. Pure.

Texts of the request are not repeated: they may be long, or private.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple, cast

from jan_serve.api.http.json_position import line_and_column, span_of

Path = tuple[str | int, ...]

_EXPECTED: Final = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "a boolean",
    "list_type": "a sequence",
    "dict_type": "a map",
    "model_type": "a map",
    "model_attributes_type": "a map",
}
_LONGEST_NUMBER: Final = 40
_MOST_ERRORS: Final = 8


class _Entry(NamedTuple):
    """An error of pydantic's at a place of the body, which its `loc` mixes with names of union members."""

    path: Path
    error: Mapping[str, Any]

    @property
    def is_missing(self) -> bool:
        return self.error["type"] in ("missing", "union_tag_not_found")


def rejection(errors: Sequence[Mapping[str, Any]], value: Any, body: bytes) -> str:
    """For the error that a reader from the front meets first. errors: pydantic's, one or more, of `value`, which is
    what the text `body` says."""
    entries = [_Entry(_path(error, value), error) for error in errors[:_MOST_ERRORS]]
    # Where a value may have several forms, the errors of the one that fits farther in say more.
    deepest = [
        entry
        for entry in entries
        if entry.is_missing or not any(_is_inside(other.path, entry.path) for other in entries)
    ]
    placed = [(_offset(entry, value, body), entry) for entry in deepest]
    known = [(offset, entry) for offset, entry in placed if offset is not None]
    if not known:
        return _words([deepest[0]], value)
    offset, first = min(known, key=lambda each: each[0])
    alike = [entry for _, entry in known if entry.path == first.path and entry.is_missing == first.is_missing]
    line, column = line_and_column(body, offset)
    return f"{_words(alike, value)} at line {line} column {column}"


def _is_inside(inner: Path, outer: Path) -> bool:
    return len(inner) > len(outer) and inner[: len(outer)] == outer


def _path(error: Mapping[str, Any], value: Any) -> Path:
    path: list[str | int] = []
    for step in error["loc"]:
        if isinstance(value, dict) and isinstance(step, str) and step in value:
            path.append(step)
            value = cast(dict[str, Any], value)[step]
        elif isinstance(value, list) and isinstance(step, int) and step < len(cast(list[Any], value)):
            path.append(step)
            value = cast(list[Any], value)[step]
    return tuple(path)


def _value(path: Path, value: Any) -> Any:
    for step in path:
        value = value[step]
    return value


def _offset(entry: _Entry, value: Any, body: bytes) -> int | None:
    """As far as serde has read: behind a value, but before one that it does not open."""
    span = span_of(body, entry.path)
    if span is None:
        return None
    opens = isinstance(_value(entry.path, value), list | dict)
    return span.start if opens and entry.error["type"] in _EXPECTED else span.end


def _words(entries: Sequence[_Entry], value: Any) -> str:
    path = _dotted(entries[0].path)
    return f"{path}: {_reason(entries, value)}" if path else _reason(entries, value)


def _dotted(path: Path) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def _reason(entries: Sequence[_Entry], value: Any) -> str:
    first = entries[0]
    match first.error["type"]:
        case "missing":
            return f"missing field `{first.error['loc'][-1]}`"
        case "union_tag_not_found":
            return "missing field `type`"
        case "union_tag_invalid" | "literal_error":
            return f"unknown variant, expected one of {_names(first.error)}"
        case kind if kind in _EXPECTED:
            forms = [_EXPECTED[each.error["type"]] for each in entries if each.error["type"] in _EXPECTED]
            found = _found(_value(first.path, value))
            return f"invalid type: {found}, expected {' or '.join(form for form, _ in groupby(forms))}"
        case _:
            return str(first.error["msg"])


def _names(error: Mapping[str, Any]) -> str:
    told = error["ctx"].get("expected_tags") or error["ctx"]["expected"]
    return str(told).replace("'", "`").replace(" or ", ", ")


def _found(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return f"boolean `{str(value).lower()}`"
        case int():
            return f"integer `{_short(value)}`"
        case float():
            return f"floating point `{_short(value)}`"
        case str():
            return "string"
        case list():
            return "sequence"
        case _:
            return "map"


def _short(number: float) -> str:
    # Integers of thousands of digits take long to print.
    text = f"{number}" if abs(number) < 10**_LONGEST_NUMBER else "…"
    return text[:_LONGEST_NUMBER]

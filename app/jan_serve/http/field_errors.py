"""What a client reads about the fields that break a schema: places in its own body, and no names of our types."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec

_MAX_KEY_CHARS: Final = 100
_NEEDED: Final = ("missing", "union_tag_not_found")
_NAME: Final = re.compile(r"'(\w+)'")
_ELSEWHERE: Final = (("query",), ("path",), ("header",))
"""Places without unions."""

_OBJECTS: Final = ("model_type", "model_attributes_type", "dict_type")

Path = tuple[str | int, ...]


class FieldError(msgspec.Struct, frozen=True):
    """A field that breaks the route's schema. loc: path of the value, beginning with `body`."""

    loc: Path
    message: str
    kind: str

    @property
    def place(self) -> str:
        """`messages[0].role` for ("body", "messages", 0, "role")."""
        path = ""
        for step in self.loc[1:] if self.loc[:1] == ("body",) else self.loc:
            path += f"[{step}]" if isinstance(step, int) else f".{step}"
        return path.lstrip(".") or "body"


def field_errors(
    errors: Sequence[Mapping[str, Any]], body: object, limit: int = 16
) -> tuple[FieldError, ...]:
    """errors: pydantic's, of this body. Values of the request are not repeated: they may be long or private.

    Where a value may have several forms, errors deeper inside it are of the form that fits best, and stand alone.
    """
    found = [(_place_of(error, body), error) for error in errors[:limit]]
    deepest = [
        (place, error)
        for place, error in found
        if error["type"] in _NEEDED or not any(is_inside(other, place) for other, _ in found)
    ]
    return tuple(
        FieldError(_short(place), _message_of(error), str(error["type"])) for place, error in deepest
    )


def summary_of(fields: Sequence[FieldError], places: int = 3) -> str:
    """The first places with what is wrong there."""
    messages: dict[str, list[str]] = {}
    for field in fields:
        found = messages.setdefault(field.place, [])
        if field.message not in found:
            found.append(field.message)
    return "; ".join(f"{place}: {', or '.join(found)}" for place, found in list(messages.items())[:places])


def path_in(loc: Sequence[str | int], value: object) -> Path:
    """The steps of pydantic's location that lead to a value; the others name members of unions."""
    path: list[str | int] = []
    for step in loc:
        if isinstance(value, dict) and isinstance(step, str) and step in value:
            path.append(step)
            value = cast(dict[str, Any], value)[step]
        elif isinstance(value, list) and isinstance(step, int) and step < len(cast(list[Any], value)):
            path.append(step)
            value = cast(list[Any], value)[step]
    return tuple(path)


def is_inside(inner: Path, outer: Path) -> bool:
    return len(inner) > len(outer) and inner[: len(outer)] == outer


def _place_of(error: Mapping[str, Any], body: object) -> Path:
    loc: Path = tuple(error["loc"])
    if body is None or loc[:1] in _ELSEWHERE:
        return loc
    place = path_in(loc, {"body": body} if loc[:1] == ("body",) else body)
    return (*place, loc[-1]) if error["type"] == "missing" and loc != ("body",) else place


def _message_of(error: Mapping[str, Any]) -> str:
    """pydantic's message, without names of types and functions, and without the tag, which it would repeat."""
    match error["type"]:
        case "union_tag_invalid":
            return f"{_discriminator(error)} must be one of: {error['ctx']['expected_tags']}"
        case "union_tag_not_found":
            return f"{_discriminator(error)} is needed"
        case kind if kind in _OBJECTS:
            return "Input should be an object"
        case _:
            return str(error["msg"])


def _discriminator(error: Mapping[str, Any]) -> str:
    found = _NAME.search(str(error["ctx"]["discriminator"]))
    return found[0] if found is not None else "'type'"


def _short(place: Path) -> Path:
    """Keys of a request's objects are values, too."""
    return tuple(step[:_MAX_KEY_CHARS] if isinstance(step, str) else step for step in place)

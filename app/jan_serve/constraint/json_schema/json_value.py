"""Views of untrusted JSON values that keep the type checker informed."""

from __future__ import annotations

from typing import Any, cast


def as_object(value: Any) -> dict[str, Any] | None:
    """The value where it is a JSON object."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def as_array(value: Any) -> list[Any] | None:
    """The value where it is a JSON array."""
    return cast("list[Any]", value) if isinstance(value, list) else None


def kind_of(value: Any) -> str:
    """The value's type, as messages name it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    names: tuple[tuple[type, str], ...] = (
        (str, "a string"),
        (int, "a number"),
        (float, "a number"),
        (list, "an array"),
        (dict, "an object"),
    )
    return next((name for kind, name in names if isinstance(value, kind)), "not a JSON value")


def mentioned(value: Any, names: frozenset[str]) -> set[str]:
    """Those of the names that some object at any depth has a member of."""
    found: set[str] = set()
    todo = [value]
    while todo:
        value = todo.pop()
        if type(value) is dict:
            members = cast("dict[str, Any]", value)
            if not names.isdisjoint(members):
                found.update(names.intersection(members))
            todo += members.values()
        elif type(value) is list:
            todo += cast("list[Any]", value)
    return found

"""Depth limit for values from files: code that recurses over them later needs more stack than their parser did."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast


def is_deeper(value: Any, levels: int) -> bool:
    """Whether dictionaries and lists nest deeper than so many levels. Never recurses."""
    level = [value]
    for _ in range(levels):
        level = [inner for outer in level for inner in _inner(outer)]
    return any(isinstance(each, dict | list) for each in level)


def _inner(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast(dict[Any, Any], value).values()
    return cast(list[Any], value) if isinstance(value, list) else ()

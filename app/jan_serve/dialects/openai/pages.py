"""Pages of OpenAI's lists. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from typing_extensions import TypedDict

from jan_serve.errors import InvalidRequest


class Page(TypedDict):
    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


def page(rows: Sequence[Mapping[str, Any]], after: str | None, limit: int) -> Page:
    """The first rows behind one. Raises InvalidRequest for an `after` that is none of them."""
    ids = [row["id"] for row in rows]
    if after is not None and after not in ids:
        raise InvalidRequest(f"after: there is no item {after[:100]!r}", param="after")
    start = 0 if after is None else ids.index(after) + 1
    return listed(rows[start : start + limit], start + limit < len(rows))


def listed(shown: Sequence[Mapping[str, Any]], has_more: bool) -> Page:
    return {
        "object": "list",
        "data": [dict(row) for row in shown],
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": has_more,
    }

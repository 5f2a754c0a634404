"""Wire types of the lists of models, and the pages of such a list. Pure, and light: a proxy pages lists too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from typing_extensions import TypedDict

from jan_serve.errors import InvalidRequest


class ModelInfo(TypedDict):
    """An available model. created_at: when its file changed (RFC 3339).

    Lengths are in tokens of prompt and answer together; null if unknown.
    """

    type: Literal["model"]
    id: str
    display_name: str
    created_at: str
    lifecycle: Literal["active"]
    max_input_tokens: int | None
    max_tokens: int | None


class ModelPage(TypedDict):
    data: list[ModelInfo]
    has_more: bool
    first_id: str | None
    last_id: str | None


def page(infos: Sequence[Any], limit: int, after_id: str | None, before_id: str | None) -> Any:
    """The first `limit` items after one, or the last before one. Raises InvalidRequest for an unknown id."""
    ids = [info["id"] for info in infos]
    for field, value in (("after_id", after_id), ("before_id", before_id)):
        if value is not None and value not in ids:
            raise InvalidRequest(f"{field}: there is no model {value[:80]!r}", param=field)
    start = 0 if after_id is None else ids.index(after_id) + 1
    end = len(ids) if before_id is None else ids.index(before_id)
    among = list(infos[start:end])
    shown = among[-limit:] if before_id is not None and after_id is None else among[:limit]
    return listed(shown, len(shown) < len(among))


def listed(shown: Sequence[Any], has_more: bool) -> Any:
    return {
        "data": shown,
        "has_more": has_more,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
    }

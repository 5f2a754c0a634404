"""Wire types of the lists of models."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict


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

"""The `input` of LMDeploy's /pooling as texts and token ids. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.wire_types import MAX_INT, check_count
from jan_serve.errors import InvalidRequest


def pooling_inputs(value: str | list[object]) -> list[str | tuple[int, ...]]:
    """The four forms of `input`, as texts or token ids. Raises InvalidRequest with LMDeploy's messages."""
    if isinstance(value, str):
        return [value]
    if not value:
        raise InvalidRequest("Input list cannot be empty.", param="input")
    if all(isinstance(item, str) for item in value):
        check_count(value, limits.MAX_EMBEDDING_INPUTS, "input")
        return [cast(str, item) for item in value]
    if _are_ids(value):
        return [_ids(value)]
    rows = [cast(list[object], item) for item in value if isinstance(item, list)]
    if len(rows) != len(value) or not all(map(_are_ids, rows)):
        raise InvalidRequest("Input list contains an invalid type.", param="input")
    check_count(rows, limits.MAX_EMBEDDING_INPUTS, "input")
    return [_ids(row) for row in rows]


def _are_ids(items: Sequence[object]) -> bool:
    return all(isinstance(item, int) and not isinstance(item, bool) for item in items)


def _ids(items: Sequence[object]) -> tuple[int, ...]:
    check_count(items, limits.MAX_PROMPT_TOKENS, "input")
    ids = tuple(cast(int, item) for item in items)
    for token in ids:
        if not 0 <= token <= MAX_INT:
            raise InvalidRequest(f"input: {str(token)[:20]} is not a token id", param="input")
    return ids

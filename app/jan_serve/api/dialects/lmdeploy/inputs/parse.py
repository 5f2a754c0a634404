"""The `input` of LMDeploy's /pooling as texts and token ids. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from jan_serve.api.dialects.lmdeploy import limits
from jan_serve.api.shared.wire_types import MAX_INT, check_count
from jan_serve.errors import InvalidRequest


def pooling_inputs(given: str | list[object]) -> list[str | tuple[int, ...]]:
    """The four forms of `input` as inputs, each a text or token ids. Raises InvalidRequest in LMDeploy's words."""
    if isinstance(given, str):
        return [given]
    if not given:
        raise InvalidRequest("Input list cannot be empty.", param="input")
    if all(isinstance(item, str) for item in given):
        check_count(given, limits.MAX_INPUTS, "input")
        return [cast(str, item) for item in given]
    if _are_ids(given):
        return [_ids(given)]
    rows = [cast(list[object], item) for item in given if isinstance(item, list)]
    if len(rows) != len(given) or not all(map(_are_ids, rows)):
        raise InvalidRequest("Input list contains an invalid type.", param="input")
    check_count(rows, limits.MAX_INPUTS, "input")
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

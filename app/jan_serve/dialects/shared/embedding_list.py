"""Embeddings in the form of OpenAI's API, which several dialects share."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import Final

import msgspec

from jan_serve.generation.embeddings import to_floats
from jan_serve.http.replies import json_bytes

_VECTORS_AT_ONCE: Final = 16


class EmbeddingItem(msgspec.Struct, frozen=True):
    """embedding: encoded JSON, a list of numbers or a base64 text."""

    index: int
    embedding: msgspec.Raw
    object: str = "embedding"


async def embedding_list(vectors: Sequence[bytes], *, as_base64: bool) -> list[EmbeddingItem]:
    """One item per vector. Yields to the event loop regularly: thousands of vectors take seconds to encode."""
    items: list[EmbeddingItem] = []
    for index, vector in enumerate(vectors):
        value = base64.b64encode(vector).decode() if as_base64 else to_floats(vector)
        items.append(EmbeddingItem(index, msgspec.Raw(json_bytes(value))))
        if index % _VECTORS_AT_ONCE == _VECTORS_AT_ONCE - 1:
            await asyncio.sleep(0)
    return items


def embedding_inputs(
    value: str | list[str] | list[int] | list[list[int]],
) -> list[str | tuple[int, ...]]:
    """value: as TextsOrTokens accepts it. Each input is a text or token ids."""
    if isinstance(value, str):
        return [value]
    if value and isinstance(value[0], int):
        return [tuple(item for item in value if isinstance(item, int))]
    return [item if isinstance(item, str) else tuple(item) for item in value if not isinstance(item, int)]

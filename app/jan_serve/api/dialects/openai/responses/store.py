"""Answers stored for `previous_response_id`: in memory, limited in bytes, least recently used evicted first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import msgspec
from pydantic import TypeAdapter

from jan_serve.api.dialects.openai.responses.wire_items import InputItem, ReferenceItem
from jan_serve.api.dialects.openai.responses.wire_reply import ResponseBody
from jan_serve.api.http.replies import json_bytes

_ITEM: Final[TypeAdapter[InputItem]] = TypeAdapter(InputItem)
_OVERHEAD: Final = 1_000
"""Approximate bytes of an object besides its text."""


class KeptResponse(msgspec.Struct, frozen=True):
    """An answer and the whole conversation up to and including it, without instructions.

    size: bytes, counted as if nothing were shared with other answers. ids: of the answer's own items.
    """

    body: ResponseBody
    items: tuple[InputItem, ...]
    size: int
    ids: tuple[str, ...]


class ResponseStore:
    """Not thread-safe: used only on the event loop. Not persistent."""

    def __init__(self, max_bytes: int) -> None:
        """max_bytes: of all answers together; 0 stores none."""
        self._max_bytes = max_bytes
        self._kept: OrderedDict[str, KeptResponse] = OrderedDict()
        self._items: dict[str, InputItem] = {}
        self._bytes = 0

    @property
    def keeps(self) -> bool:
        return self._max_bytes > 0

    def get(self, response_id: str) -> KeptResponse | None:
        """None if not stored, or evicted."""
        kept = self._kept.get(response_id)
        if kept is not None:
            self._kept.move_to_end(response_id)
        return kept

    def resolved(self, items: Sequence[InputItem]) -> list[InputItem]:
        """Replaces references to stored items; unknown references stay."""
        return [self._items.get(item.id, item) if isinstance(item, ReferenceItem) else item for item in items]

    def keep(self, body: ResponseBody, before: KeptResponse | None, items: Sequence[InputItem]) -> None:
        """before: the answer of `previous_response_id`. items: of the request.

        An answer larger than the whole store is not stored.
        """
        own = {item["id"]: _ITEM.validate_python(item) for item in body["output"]}
        size = (before.size if before is not None else 0) + len(json_bytes(body)) + _OVERHEAD
        size += sum(len(item.model_dump_json()) + _OVERHEAD for item in items)
        if size > self._max_bytes:
            return
        conversation = (*(before.items if before is not None else ()), *items, *own.values())
        self._kept[body["id"]] = KeptResponse(body, conversation, size, tuple(own))
        self._items |= own
        self._bytes += size
        while self._bytes > self._max_bytes:
            self.delete(next(iter(self._kept)))

    def delete(self, response_id: str) -> bool:
        """Returns whether it existed."""
        kept = self._kept.pop(response_id, None)
        if kept is None:
            return False
        for item_id in kept.ids:
            self._items.pop(item_id, None)
        self._bytes -= kept.size
        return True

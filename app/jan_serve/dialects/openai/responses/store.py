"""Answers stored for `previous_response_id`: in memory, limited in bytes, least recently used evicted first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import msgspec
from pydantic import TypeAdapter

from jan_serve.dialects.openai.responses.wire import InputItem, ReferenceItem
from jan_serve.dialects.openai.responses.wire_reply import ResponseBody
from jan_serve.http.replies import json_bytes

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
    """Each caller finds its own answers alone. Where there is no room, the caller that stores most loses its own.

    Not thread-safe: used only on the event loop. Not persistent.
    """

    def __init__(self, max_bytes: int) -> None:
        """max_bytes: of all answers together; 0 stores none."""
        self._max_bytes = max_bytes
        self._shelves: dict[str, _Shelf] = {}
        self._bytes = 0

    @property
    def keeps(self) -> bool:
        return self._max_bytes > 0

    def get(self, caller: str, response_id: str) -> KeptResponse | None:
        """None if not stored, or evicted."""
        shelf = self._shelves.get(caller)
        kept = shelf.kept.get(response_id) if shelf is not None else None
        if shelf is not None and kept is not None:
            shelf.kept.move_to_end(response_id)
        return kept

    def resolved(self, caller: str, items: Sequence[InputItem]) -> list[InputItem]:
        """Replaces references to stored items; unknown references stay."""
        shelf = self._shelves.get(caller)
        known = shelf.items if shelf is not None else {}
        return [known.get(item.id, item) if isinstance(item, ReferenceItem) else item for item in items]

    def keep(
        self, caller: str, body: ResponseBody, before: KeptResponse | None, items: Sequence[InputItem]
    ) -> None:
        """before: the answer of `previous_response_id`. items: of the request.

        An answer larger than the whole store is not stored.
        """
        own = {item["id"]: _ITEM.validate_python(item) for item in body["output"]}
        size = (before.size if before is not None else 0) + len(json_bytes(body)) + _OVERHEAD
        size += sum(len(item.model_dump_json()) + _OVERHEAD for item in items)
        if size > self._max_bytes:
            return
        conversation = (*(before.items if before is not None else ()), *items, *own.values())
        shelf = self._shelves.setdefault(caller, _Shelf())
        shelf.kept[body["id"]] = KeptResponse(body, conversation, size, tuple(own))
        shelf.items |= own
        shelf.n_bytes += size
        self._bytes += size
        while self._bytes > self._max_bytes:
            fullest = max(self._shelves, key=lambda name: self._shelves[name].n_bytes)
            self.delete(fullest, next(iter(self._shelves[fullest].kept)))

    def delete(self, caller: str, response_id: str) -> bool:
        """Forget a response; returns whether it existed."""
        shelf = self._shelves.get(caller)
        kept = shelf.kept.pop(response_id, None) if shelf is not None else None
        if shelf is None or kept is None:
            return False
        for item_id in kept.ids:
            shelf.items.pop(item_id, None)
        shelf.n_bytes -= kept.size
        self._bytes -= kept.size
        if not shelf.kept:
            del self._shelves[caller]
        return True


class _Shelf:
    """What one caller stores. kept: answers, the least recently used first. items: those of the answers, by id."""

    def __init__(self) -> None:
        self.kept: OrderedDict[str, KeptResponse] = OrderedDict()
        self.items: dict[str, InputItem] = {}
        self.n_bytes = 0

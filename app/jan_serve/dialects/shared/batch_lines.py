"""What all dialects with batches have: checks of the lines, their files of JSON lines, and the batch of a request."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final, cast

import msgspec

from jan_serve.core.caller import cache_salt
from jan_serve.http.errors import HttpError, http_problem
from jan_serve.http.replies import json_bytes
from jan_serve.journal.batch_runner import FaultyInput
from jan_serve.journal.batches import Batch, BatchTable, LineFault

MAX_LINES: Final = 100_000
MAX_CUSTOM_ID: Final = 512
_MAX_FAULTS: Final = 100


def no_batch(batch_id: str) -> HttpError:
    return http_problem(HTTPStatus.NOT_FOUND, "batch_not_found", f"There is no batch {batch_id[:100]!r}.")


async def own_batch(table: BatchTable, dialect: str, batch_id: str) -> Batch:
    """The caller's. Raises HttpError if there is none in this dialect, and as BatchTable."""
    batch = await table.find(cache_salt.get(), batch_id)
    if batch is None or batch.dialect != dialect:
        raise no_batch(batch_id)
    return batch


class Faults:
    """Collects what is wrong with lines."""

    def __init__(self) -> None:
        self._found: list[LineFault] = []
        self._ids: set[str] = set()

    def add(self, code: str, message: str, line: int | None, param: str | None = None) -> None:
        if len(self._found) < _MAX_FAULTS:
            self._found.append(LineFault(code, message, param, line))

    def custom_id(self, value: object, line: int) -> str:
        """The id, which no other line has."""
        if not isinstance(value, str) or not 0 < len(value) <= MAX_CUSTOM_ID:
            self.add(
                "invalid_custom_id",
                f"custom_id: it must be a text of 1 to {MAX_CUSTOM_ID} characters",
                line,
                "custom_id",
            )
            return ""
        if value in self._ids:
            self.add("duplicate_custom_id", f"custom_id: {value[:80]!r} is there already", line, "custom_id")
        self._ids.add(value)
        return value

    def body(self, value: object, line: int, param: str) -> bytes:
        """The request, which wants no stream."""
        if not isinstance(value, dict):
            self.add("invalid_request", f"{param}: an object is needed", line, param)
            return b"{}"
        fields = cast(dict[str, Any], value)
        for name in ("stream", "background"):
            if fields.get(name):
                self.add(
                    "invalid_request", f"{param}.{name}: a line is answered whole", line, f"{param}.{name}"
                )
        return json_bytes(fields)

    def count(self, lines: int) -> None:
        if not lines:
            self.add("empty_file", "The input has no requests.", None)
        if lines > MAX_LINES:
            self.add("too_many_tasks", f"The input has {lines} requests; the limit is {MAX_LINES}.", None)

    def check(self) -> None:
        """Raises FaultyInput with all that was found."""
        if self._found:
            raise FaultyInput(self._found)


def json_lines(rows: Iterable[Any]) -> bytes:
    return b"".join(json_bytes(row) + b"\n" for row in rows)


def embedded(data: bytes) -> msgspec.Raw | str:
    """A reply inside a line: its JSON as it is. Replies without JSON, which no route has, are texts."""
    return msgspec.Raw(data) if data.startswith((b"{", b"[")) else data.decode("utf-8", "replace")

"""The lines of Anthropic's batches and of their results. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any, Final

from jan_serve.dialects.shared.batch_lines import Faults, embedded, json_lines
from jan_serve.journal.batches import Batch, EndedLine, Line, State

PATH: Final = "/v1/messages"
_CUSTOM_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def batch_lines(requests: Sequence[tuple[str, dict[str, Any]]]) -> list[Line]:
    """requests: their ids and parameters. Raises FaultyInput, with lines from 0."""
    faults, lines = Faults(), list[Line]()
    faults.count(len(requests))
    for number, (custom_id, params) in enumerate(requests):
        if _CUSTOM_ID.fullmatch(custom_id) is None:
            faults.add(
                "invalid_custom_id",
                "custom_id: it must have 1 to 64 letters, digits, `_` or `-`",
                number,
                "custom_id",
            )
        faults.custom_id(custom_id, number)
        lines.append(Line(custom_id, PATH, faults.body(params, number, "params")))
    faults.check()
    return lines


class AnthropicForm:
    """See BatchForm. All results are in one file."""

    def lines(self, batch: Batch, content: bytes) -> list[Line]:
        raise TypeError("lines of this dialect come checked")

    def outputs(self, batch: Batch, lines: Iterable[EndedLine], end: State) -> tuple[bytes, bytes]:
        return json_lines({"custom_id": line.custom_id, "result": _result(line, end)} for line in lines), b""


def _result(line: EndedLine, end: State) -> dict[str, Any]:
    if line.reply is None:
        return {"type": "expired" if end == "expired" else "canceled"}
    body = embedded(line.reply.body)
    if line.reply.status < HTTPStatus.BAD_REQUEST:
        return {"type": "succeeded", "message": body}
    return {"type": "errored", "error": body}

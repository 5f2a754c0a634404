"""The lines of OpenAI's input, output and error files. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final, cast

import msgspec

from jan_serve.dialects.shared.batch_lines import MAX_LINES, Faults, embedded, json_lines
from jan_serve.journal.batches import Batch, EndedLine, Line, State

ENDPOINTS: Final = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
_UNDONE: Final[dict[State, tuple[str, str]]] = {
    "expired": ("batch_expired", "This request was not answered before the completion window ended."),
    "cancelled": ("batch_cancelled", "This request was not answered before the batch was cancelled."),
}


class OpenAIForm:
    """OpenAI's form of batches."""

    def lines(self, batch: Batch, content: bytes) -> list[Line]:
        faults, lines = Faults(), list[Line]()
        rows = [(number, row) for number, row in enumerate(content.splitlines(), 1) if row.strip()]
        faults.count(len(rows))
        for number, row in rows[: MAX_LINES + 1]:
            try:
                value: Any = msgspec.json.decode(row)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                faults.add("invalid_json_line", "This line is not valid JSON.", number)
                continue
            if not isinstance(value, dict):
                faults.add("invalid_json_line", "This line is no JSON object.", number)
                continue
            lines.append(_line(cast(dict[str, Any], value), number, batch.facts.endpoint, faults))
        faults.check()
        return lines

    def outputs(self, batch: Batch, lines: Iterable[EndedLine], end: State) -> tuple[bytes, bytes]:
        answers, errors = list[Any](), list[Any]()
        for line in lines:
            row = _row(batch, line, end)
            is_good = line.reply is not None and line.reply.status < HTTPStatus.BAD_REQUEST
            (answers if is_good else errors).append(row)
        return json_lines(answers), json_lines(errors)


def _line(value: dict[str, Any], number: int, endpoint: str, faults: Faults) -> Line:
    if value.get("method") != "POST":
        faults.add("invalid_method", "method: POST is the only one", number, "method")
    if value.get("url") != endpoint:
        faults.add(
            "mismatched_endpoint", f"url: must be {endpoint}, the endpoint of the batch", number, "url"
        )
    custom_id = faults.custom_id(value.get("custom_id"), number)
    return Line(custom_id, endpoint, faults.body(value.get("body"), number, "body"))


def _row(batch: Batch, line: EndedLine, end: State) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": f"batch_req_{batch.id.removeprefix('batch_')}_{line.number}",
        "custom_id": line.custom_id,
        "response": None,
        "error": None,
    }
    if line.reply is None:
        code, message = _UNDONE[end]
        row["error"] = {"code": code, "message": message}
    else:
        row["response"] = {
            "status_code": line.reply.status,
            "request_id": line.reply.request_id,
            "body": embedded(line.reply.body),
        }
    return row

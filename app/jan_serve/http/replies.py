"""JSON on one line: replies, and events of streams."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response

from jan_serve.text.valid_text import without_lone_surrogates

_encode = msgspec.json.Encoder().encode


def json_bytes(value: object) -> bytes:
    """Compact JSON without line separators at which readers of streams split. Half a surrogate pair becomes U+FFFD."""
    try:
        encoded = _encode(value)
    except UnicodeEncodeError:
        encoded = without_lone_surrogates(json.dumps(msgspec.to_builtins(value)).encode())
    # JSON allows U+0085, U+2028 and U+2029 unescaped, but str.splitlines(), which clients use, splits at them.
    if b"\xc2\x85" in encoded or b"\xe2\x80" in encoded:
        encoded = (
            encoded.replace(b"\xc2\x85", b"\\u0085")
            .replace(b"\xe2\x80\xa8", b"\\u2028")
            .replace(b"\xe2\x80\xa9", b"\\u2029")
        )
    return encoded


def json_reply(
    body: object, status: int = HTTPStatus.OK, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(json_bytes(body), status, dict(headers or {}), media_type="application/json")


def frame(value: object) -> bytes:
    """One event of an event stream."""
    return b"data: " + json_bytes(value) + b"\n\n"


def named_frame(value: Mapping[str, Any]) -> bytes:
    """One event whose `event:` field repeats the member `type`."""
    return b"event: " + str(value["type"]).encode() + b"\n" + frame(value)

"""Frames and messages of helper processes. Their lives are in the tests beside."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.errors import InvalidRequest, ProtocolError, TemplateError
from jan_serve.helpers.child import reply_to
from jan_serve.helpers.kinds import (
    COMPILING,
    DECODING,
    HEADERS,
    MAX_FRAME_BYTES,
    RENDERING,
    HelperKind,
    ReadHeader,
    Reply,
)

KINDS: tuple[HelperKind[Any, Any], ...] = (COMPILING, HEADERS, DECODING, RENDERING)
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.command)


def test_a_message_has_a_limit() -> None:
    with pytest.raises(ProtocolError, match="too large for a media decoder"):
        DECODING.replies.body(Reply(result=bytes(MAX_FRAME_BYTES)))


@every_kind
@pytest.mark.parametrize("body", [b'{"x":' + b"[" * 9_999, b"\x81\xa1x" + b"\x91" * 9_999, b"", b"\xa1\xff"])
def test_what_is_no_message_is_a_protocol_error(kind: HelperKind[Any, Any], body: bytes) -> None:
    for decode in (kind.requests.decode, kind.replies.decode):
        with pytest.raises(ProtocolError):
            decode(body)


def _fails(error: Exception) -> Any:
    def work(_: object) -> Any:
        raise error

    return work


def _too_long(_: object) -> Any:
    return "x" * (MAX_FRAME_BYTES + 1)


REPLIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "a refusal": (_fails(InvalidRequest("no", param="x")), {"code": "invalid_request", "last": False}),
    "too large for the memory": (_fails(MemoryError()), {"beyond_limits": True, "last": True}),
    "no memory for a library": (
        _fails(ImportError("x.so: failed to map segment from shared object")),
        {"beyond_limits": True, "last": True},
    ),
    "too large for the pipe": (_too_long, {"beyond_limits": True, "last": True}),
}


@pytest.mark.parametrize("case", REPLIES)
def test_replies_in_place_of_a_result(case: str) -> None:
    work, fields = REPLIES[case]
    data, last = reply_to(HEADERS, work, HEADERS.requests.body(ReadHeader(path="m")))
    reply = HEADERS.replies.decode(data)
    assert {name: getattr(reply, name) for name in fields} == fields
    assert last is fields["last"]


@pytest.mark.parametrize(
    "error", [MemoryError(), TemplateError("the chat template used too much memory"), InvalidRequest("no")]
)
def test_a_machine_without_memory_is_no_fault_of_the_request(error: Exception) -> None:
    if isinstance(error, TemplateError):
        error.__cause__ = MemoryError()
    is_of_memory = not isinstance(error, InvalidRequest) or isinstance(error, TemplateError)
    data, last = reply_to(
        HEADERS, _fails(error), HEADERS.requests.body(ReadHeader(path="m")), None, lambda: True
    )
    reply = HEADERS.replies.decode(data)
    assert (reply.beyond_limits, last) == (False, is_of_memory)
    assert reply.code == ("insufficient_memory" if is_of_memory else "invalid_request")

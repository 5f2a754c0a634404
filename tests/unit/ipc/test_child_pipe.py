"""Frames: what is written is read back, and nothing else is."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import pytest

from jan_serve.core.constraint import CompiledGrammar, Guide
from jan_serve.core.engine_stats import EngineStats
from jan_serve.core.events import Timings, TokenInfo, TokenLogprob
from jan_serve.core.messages import AudioPiece, ImagePiece
from jan_serve.core.placement import LayerParts, ModelParts, PlacementOptions
from jan_serve.core.request import SamplingParams, StopConditions
from jan_serve.errors import ProtocolError
from jan_serve.ipc.channel import EVENTS, REQUESTS
from jan_serve.ipc.child_pipe import LENGTH, body_length
from jan_serve.ipc.messages import (
    AbortRequest,
    Accepted,
    Chunk,
    Counted,
    CountRequest,
    Detokenized,
    DetokenizeRequest,
    Embedded,
    EmbedRequest,
    EngineRequest,
    EngineSettings,
    Failed,
    LoadFailed,
    LoadModel,
    LoadProgress,
    PingRequest,
    Pong,
    RequestCompleted,
    SequenceFinished,
    ShutdownRequest,
    Step,
    Tokenized,
    TokenizeRequest,
    WorkerEvent,
    WorkerRequest,
)

TOKEN = TokenInfo(7, b"\xf0\x9f", False, -0.25, (TokenLogprob(8, b"\x98", -1.5),))

ALL_REQUESTS: list[WorkerRequest] = [
    LoadModel(
        path="/models/mödel 模型.gguf",
        settings=EngineSettings(
            n_ctx=512,
            parts=ModelParts(layers=(LayerParts(1), LayerParts(2, 3)), pinned=(("CPU", 4),)),
            placement=PlacementOptions(tensor_split=(3.0, 1.0), override_tensor=(("x", "CPU"),)),
        ),
    ),
    EngineRequest(
        id=1,
        cache_salt="",
        prompt=(
            "text \x00 é",
            (1, 2, 3),
            ImagePiece(width=1, height=2, digest="ab", pixels=b"\x00\xff\x01" * 2),
            AudioPiece(digest="cd", samples=b"\x00" * 4),
        ),
        sampling=SamplingParams(logit_bias={5: -100.0}, seed=2**32 - 1),
        stopping=StopConditions(stop=("\n",)),
        guide=Guide(grammar=CompiledGrammar("start: /[a-z]/")),
    ),
    EmbedRequest(id=2, inputs=("a", (1, 2))),
    CountRequest(id=7, prompt=("a", (1,), ImagePiece(width=4000, height=3000, digest="ab"))),
    TokenizeRequest(id=3, text="😀", with_pieces=True),
    DetokenizeRequest(id=4, tokens=(1, 2)),
    AbortRequest(5),
    PingRequest(6),
    ShutdownRequest(),
]

ALL_EVENTS: list[WorkerEvent] = [
    LoadProgress(0.5),
    LoadFailed(code="invalid_model", payload={"message": "no", "param": None}),
    Step(
        (
            Accepted(1, 10),
            Chunk(0, "é", (TOKEN,), id=1),
            SequenceFinished(id=1, index=0, reason="stop", completion_tokens=2, mean_logprob=-0.5),
            RequestCompleted(id=1, prompt_tokens=10, completion_tokens=2, cached_tokens=0, timings=Timings()),
            Failed(id=2, code="invalid_grammar", payload={"reason": "x", "line": 1, "param": None}),
        )
    ),
    Failed(id=3, code="engine_failure", payload={"message": "x"}),
    Embedded(id=2, vectors=(b"\x00" * 8,), dimensions=2, prompt_tokens=3),
    Counted(7, 4015),
    Tokenized(3, [1, 2], [b"a", b"\xff"], is_last=False),
    Detokenized(4, "\ufffd"),
    Pong(nonce=6, phase="sample", phase_s=0.25, phase_id=1, stats=EngineStats(running=1)),
]


@pytest.mark.parametrize("request_", ALL_REQUESTS, ids=lambda message: type(message).__name__)
def test_a_request_is_read_as_it_was_written(request_: WorkerRequest) -> None:
    frame = REQUESTS.encode(request_)
    length = body_length(frame[: LENGTH.size], REQUESTS.limit)
    assert length == len(frame) - LENGTH.size
    assert REQUESTS.decode(frame[LENGTH.size :]) == request_


@pytest.mark.parametrize("event", ALL_EVENTS, ids=lambda message: type(message).__name__)
def test_an_event_is_read_as_it_was_written(event: WorkerEvent) -> None:
    frame = EVENTS.encode(event)
    assert EVENTS.decode(frame[LENGTH.size :]) == event


@pytest.mark.parametrize("event", ALL_EVENTS, ids=lambda message: type(message).__name__)
def test_a_cut_body_is_a_protocol_error_at_every_cut(event: WorkerEvent) -> None:
    body = EVENTS.encode(event)[LENGTH.size :]
    for cut in range(len(body)):
        with pytest.raises(ProtocolError):
            EVENTS.decode(body[:cut])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not msgpack",
        b"\xff\xfe",
        msgspec.msgpack.encode({"type": "no such message"}),
        msgspec.msgpack.encode({"type": "ping", "nonce": 1}),
        msgspec.msgpack.encode({"id": 1}),
        msgspec.msgpack.encode({"type": "detokenized", "id": 1}),
        msgspec.msgpack.encode({"type": "detokenized", "id": "1", "text": "a"}),
        b"\x83\xa4type\xabdetokenized\xa2id\x01\xa4text\xa2\xff\xfe",
        b"\x83\xa4type\xa6failed\xa2id\x01\xa7payload\x81\xa1a" + b"\x91" * 100_000,
        EVENTS.encode(Detokenized(1, "a"))[LENGTH.size :] + b"\x00",
    ],
    ids=[
        "empty",
        "text",
        "junk",
        "unknown tag",
        "a request, not an event",
        "no tag",
        "missing field",
        "wrong type",
        "bad UTF-8",
        "nested without end",
        "trailing byte",
    ],
)
def test_a_body_that_is_no_event_is_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        EVENTS.decode(body)


def test_an_event_is_no_request() -> None:
    with pytest.raises(ProtocolError, match="not a known request"):
        REQUESTS.decode(EVENTS.encode(Detokenized(1, "a"))[LENGTH.size :])


@pytest.mark.parametrize("limit", [REQUESTS.limit, EVENTS.limit])
def test_the_length_is_checked_against_the_limit(limit: int) -> None:
    assert body_length(struct.pack("<I", limit), limit) == limit
    for length in (limit + 1, 2**32 - 1):
        with pytest.raises(ProtocolError, match=f"announces {length} bytes"):
            body_length(struct.pack("<I", length), limit)


@pytest.mark.parametrize("header", [b"", b"\x01", b"\x01\x00\x00"])
def test_a_short_header_is_a_protocol_error(header: bytes) -> None:
    with pytest.raises(ProtocolError):
        body_length(header, 100)


def _nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "request_",
    [TokenizeRequest(id=1, text="\ud800"), DetokenizeRequest(id=1, tokens=(2**70,))],
    ids=["lone surrogate", "more than 64 bits"],
)
def test_a_value_that_msgpack_cannot_hold_is_a_protocol_error(request_: WorkerRequest) -> None:
    with pytest.raises(ProtocolError, match="cannot be written"):
        REQUESTS.encode(request_)


def test_a_value_that_is_nested_too_deeply_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="cannot be written"):
        EVENTS.encode(Failed(id=1, code="x", payload={"deep": _nested(100_000)}))


def test_a_message_over_the_cap_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REQUESTS, "limit", 100)
    with pytest.raises(ProtocolError, match="too large for the worker pipe; the limit is 100"):
        REQUESTS.encode(TokenizeRequest(id=1, text="a" * 101))

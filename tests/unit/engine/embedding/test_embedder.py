"""Embedder over made-up vectors: limits, lengths, and aborted requests."""

from __future__ import annotations

import threading
from typing import Any, cast

import numpy as np
import pytest

from jan_serve.engine.embedding.embedder import Embedder
from jan_serve.engine.embedding.input_pooling import Decode, EmbedJob, WholeInputs
from jan_serve.engine.embedding.interruptible_decode import InterruptibleDecode
from jan_serve.engine.llama.context import DECODE_ABORTED, DECODE_OK
from jan_serve.engine.phase import PhaseClock
from jan_serve.errors import EngineFailure
from jan_serve.ipc.messages import EmbedRequest


class Flag:
    """An AbortFlag that a decode can wait for."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def set(self) -> None:
        self.event.set()

    def clear(self) -> None:
        self.event.clear()


class FakeContext:
    """Its decode returns `code`, or hangs until it is interrupted."""

    def __init__(self, code: int = DECODE_OK, *, hangs: bool = False) -> None:
        self.abort_flag = Flag()
        self.code = code
        self.hangs = hangs
        self.entered = threading.Event()

    def decode(self, _batch: object) -> int:
        self.entered.set()
        if not self.hangs:
            return self.code
        assert self.abort_flag.event.wait(30), "the decode was not interrupted"
        return DECODE_ABORTED


class FakeInputs(WholeInputs):
    """One vector a batch, (3, 4), from this context."""

    def __init__(self, context: FakeContext) -> None:
        self.context = context
        self.rooms: list[int] = []

    def advance(self, job: EmbedJob, room: int, decode: Decode) -> None:
        self.rooms.append(room)
        if decode(cast(Any, self.context), cast(Any, None)):
            job.vectors.append(np.array([3.0, 4.0], np.float32))


def over(context: FakeContext, **fields: Any) -> tuple[Embedder, FakeInputs]:
    inputs = FakeInputs(context)
    fields = {"n_ctx": 16, "dimensions": 2, "piece_tokens": 8, **fields}
    return Embedder(cast(Any, None), inputs, InterruptibleDecode(), **fields), inputs


def job_of(*lengths: int, request_id: int = 1, normalize: bool = True) -> EmbedJob:
    request = EmbedRequest(id=request_id, inputs=(), normalize=normalize)
    return EmbedJob(request, [[0] * length for length in lengths])


@pytest.mark.parametrize(
    ("normalize", "scores", "vector"),
    [(True, False, [0.6, 0.8]), (False, False, [3.0, 4.0]), (True, True, [3.0, 4.0])],
)
def test_a_job_is_answered_after_its_last_batch(normalize: bool, scores: bool, vector: list[float]) -> None:
    embedder, inputs = over(FakeContext(), scores=scores)
    job = job_of(3, 4, normalize=normalize)
    assert embedder.advance(job, PhaseClock(), room=5) is None
    answer = embedder.advance(job, PhaseClock())
    assert answer is not None
    assert (answer.prompt_tokens, answer.dimensions, inputs.rooms) == (7, 2, [5, 8])
    assert [np.frombuffer(each, "<f4").tolist() for each in answer.vectors] == [pytest.approx(vector)] * 2


@pytest.mark.timeout(60)
def test_the_decode_of_an_aborted_request_is_interrupted() -> None:
    context = FakeContext(hangs=True)
    decode = InterruptibleDecode()
    embedder = Embedder(cast(Any, None), FakeInputs(context), decode, n_ctx=16, dimensions=2, piece_tokens=8)
    job = job_of(3, request_id=7)
    done: list[object] = []
    thread = threading.Thread(target=lambda: done.append(embedder.advance(job, PhaseClock())))
    thread.start()
    assert context.entered.wait(30)
    decode.interrupt(8)
    assert not context.abort_flag.event.is_set(), "another request"
    decode.interrupt(7)
    thread.join(30)
    assert done == [None]
    assert not job.vectors
    context.hangs = False
    assert embedder.advance(job_of(3, request_id=8), PhaseClock()) is not None
    decode.interrupt(8)  # comes too late, and does no harm to the next one
    assert not context.abort_flag.event.is_set()


def test_a_decode_that_fails_is_told() -> None:
    embedder, _ = over(FakeContext(code=-3))
    with pytest.raises(EngineFailure, match="code -3"):
        embedder.advance(job_of(3), PhaseClock())

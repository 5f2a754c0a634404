"""Embedder over made-up vectors: limits, lengths, and aborted requests."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from jan_serve.engine.decoding import InterruptibleDecode
from jan_serve.engine.embedding import embedder
from jan_serve.engine.embedding.embedder import (
    DEFAULT_N_CTX,
    DEFAULT_N_CTX_IN_PIECES,
    PIECE_TOKENS,
    Embedder,
    input_limit,
    make_embedder,
    reads_in_pieces,
)
from jan_serve.engine.embedding.input_pooling import Decode, EmbedJob, WholeInputs
from jan_serve.engine.llama.context import DECODE_ABORTED, DECODE_OK, DecodeFailure
from jan_serve.engine.llama.threads import ThreadPool
from jan_serve.engine.stats import PhaseClock
from jan_serve.engine.tokenizing import TextTokenizer, finish
from jan_serve.errors import ContextLengthExceeded, InsufficientMemory
from jan_serve.ipc.messages import EmbedRequest, EngineSettings
from tests.support.engine.fake_client import fake_facts
from tests.unit.engine.greedy_vocab import GreedyVocab


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

    def decode(self, _batch: object, _meanwhile: object = None) -> int:
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


def test_a_decode_that_fails_ends_the_worker() -> None:
    embedder, _ = over(FakeContext(code=-3))
    with pytest.raises(DecodeFailure, match="code -3"):
        embedder.advance(job_of(3), PhaseClock())


class Made(Exception):
    """Raised in place of a context: what it would be."""

    def __init__(self, _model: object, **fields: Any) -> None:
        self.fields = fields


class Probe:
    """A context that is only asked."""

    def __init__(self, *, is_causal: bool) -> None:
        self.is_causal = is_causal
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def no_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(model: object, **fields: Any) -> None:
        raise Made(model, **fields)

    monkeypatch.setattr(embedder, "LlamaContext", make)


def model_of(architecture: str = "llama", *, has_encoder: bool = False) -> Any:
    vocab = GreedyVocab(["a"])
    return SimpleNamespace(
        architecture=architecture, has_encoder=has_encoder, n_cls_out=3, n_embd=8, vocab=vocab
    )


def embedder_of(settings: EngineSettings | None = None, *, in_pieces: bool = True, **facts: Any) -> Embedder:
    return make_embedder(
        settings or EngineSettings(),
        model_of(),
        fake_facts(**facts),
        InterruptibleDecode(),
        ThreadPool(1),
        TextTokenizer(GreedyVocab(["a"])),
        in_pieces=in_pieces,
    )


def context_for(embedder: Embedder, length: int = 40) -> dict[str, Any]:
    """What the context for an input of this length would be."""
    job = EmbedJob(EmbedRequest(id=1, inputs=()), [[0] * length])
    with pytest.raises(Made) as made:
        embedder.advance(job, PhaseClock())
    return made.value.fields


def max_tokens(embedder: Embedder) -> int:
    with pytest.raises(ContextLengthExceeded) as refused:
        finish(embedder.tokenize(EmbedRequest(id=1, inputs=((0,) * 100_000,))))
    return refused.value.n_ctx


@pytest.mark.parametrize(
    ("architecture", "has_encoder", "pooling", "is_causal", "in_pieces"),
    [
        ("llama", False, "mean", True, True),
        ("llama", False, "mean", False, False),
        ("llama", False, "rank", True, False),
        ("qwen3", False, "rank", True, True),
        ("qwen3", False, "rank", False, False),
        ("t5", True, "mean", True, False),
        ("llama-embed", False, "mean", True, False),
    ],
)
@pytest.mark.parametrize("is_open", [True, False])
def test_inputs_are_cut_where_tokens_attend_to_earlier_ones_in_a_cache(
    monkeypatch: pytest.MonkeyPatch,
    architecture: str,
    has_encoder: bool,
    pooling: str,
    is_causal: bool,
    in_pieces: bool,
    is_open: bool,
) -> None:
    """Asks the model's context, or a small one that it closes."""
    context, made = Probe(is_causal=is_causal), list[Probe]()

    def make(_model: object, _threads: ThreadPool) -> Probe:
        made.append(Probe(is_causal=is_causal))
        return made[-1]

    monkeypatch.setattr(embedder, "LlamaContext", SimpleNamespace(tiny=make))
    model = model_of(architecture, has_encoder=has_encoder)
    assert reads_in_pieces(model, cast(Any, context) if is_open else None, pooling) is in_pieces
    assert context.closed == 0
    assert [probe.closed for probe in made] == [1] * len(made)
    assert not (is_open and made)


@pytest.mark.usefixtures("no_contexts")
@pytest.mark.parametrize(("pooling", "tokens"), [("mean", 40), ("rank", PIECE_TOKENS)])
def test_a_cache_larger_than_the_free_memory_is_not_created(pooling: str, tokens: int) -> None:
    """On a device, llama.cpp reports it. tokens: room of the cache, without that of a batch beside an input."""
    settings = EngineSettings(k_elements=1 << 40)
    job = EmbedJob(EmbedRequest(id=1, inputs=()), [[0] * 40])
    with pytest.raises(InsufficientMemory, match=rf"input: {tokens} tokens need .* GiB for their KV cache"):
        embedder_of(settings, pooling=pooling).advance(job, PhaseClock())
    assert context_for(embedder_of(settings, pooling=pooling, n_gpu_layers=1))


@pytest.mark.parametrize(
    ("settings", "facts", "limit"),
    [
        (EngineSettings(), {"n_ctx": 50_000, "is_embedding_model": True}, 50_000),
        (EngineSettings(), {"n_ctx": 50_000}, DEFAULT_N_CTX_IN_PIECES),
        (EngineSettings(n_ctx=50_000), {"n_ctx": 50_000}, 50_000),
    ],
)
def test_the_limit_of_a_chat_model_is_no_limit_of_an_embedding_model(
    settings: EngineSettings, facts: dict[str, Any], limit: int
) -> None:
    assert max_tokens(embedder_of(settings, **facts)) == limit


@pytest.mark.parametrize(
    ("n_ctx", "in_pieces", "is_chosen", "limit"),
    [
        (32_768, True, False, DEFAULT_N_CTX_IN_PIECES),
        (32_768, True, True, 32_768),
        (32_768, False, True, DEFAULT_N_CTX),
        (512, True, False, 512),
        (512, False, False, 512),
    ],
)
def test_how_long_an_input_of_a_chat_model_may_be(
    n_ctx: int, in_pieces: bool, is_chosen: bool, limit: int
) -> None:
    assert input_limit(n_ctx, in_pieces=in_pieces, is_chosen=is_chosen) == limit

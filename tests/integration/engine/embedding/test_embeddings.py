"""A real worker's vectors equal those pooled here from llama.cpp's vectors of each token."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from jan_serve.engine.embedding.embedder import PIECE_TOKENS
from jan_serve.engine.embedding.input_pooling import MAX_SEQUENCES, Floats
from jan_serve.engine.llama.context import DECODE_OK, Batch, LlamaContext
from jan_serve.engine.llama.model import LlamaAdapter, LlamaModel
from jan_serve.engine.llama.threads import ThreadPool
from jan_serve.errors import ContextLengthExceeded, InvalidRequest
from jan_serve.ipc.messages import AbortRequest, AdapterFile, AdapterUse, Chunk, Embedded, EmbedRequest, Step
from models.recipe.lora_file import llama_shapes, write_lora
from tests.support.drawn_grid import drawn_grid
from tests.support.engine.worker import Worker, generate, next_id, running_worker
from tests.support.gguf.models import EXACT

pytestmark = pytest.mark.integration

Pooling = Literal["mean", "cls", "last"]
N_CTX = 512
# Around the ends of pieces; more inputs than a batch may have.
LENGTHS = [1, 2, PIECE_TOKENS - 1, PIECE_TOKENS, PIECE_TOKENS + 1, 400, *[3] * (MAX_SEQUENCES + 2)]


def inputs_of(lengths: list[int], n_vocab: int = 500) -> list[tuple[int, ...]]:
    random = np.random.default_rng(7)
    return [tuple(random.integers(270, n_vocab, length).tolist()) for length in lengths]


def vectors_of_tokens(
    model: LlamaModel, tokens: tuple[int, ...], adapter: LlamaAdapter | None = None
) -> Floats:
    """The model's vector of each token, all computed in one batch."""
    context = LlamaContext(
        model,
        n_ctx=N_CTX,
        n_batch=N_CTX,
        n_ubatch=N_CTX,
        n_seq_max=1,
        threads=ThreadPool(1),
        embeddings=True,
        pooling="none",
        flash_attn="off",
    )
    if adapter is not None:
        context.set_adapters([adapter.pointer], [1.0])
    batch = Batch(N_CTX)
    batch.add(np.asarray(tokens, np.int32), 0, 0, outputs="all")
    assert context.decode(batch) == DECODE_OK
    vectors = context.token_embeddings(len(tokens), model.n_embd).copy()
    context.close()
    return vectors


def pooled(vectors: Floats, pooling: Pooling) -> Floats:
    match pooling:
        case "mean":
            vector: Floats = vectors.mean(axis=0)
        case "cls":
            vector = vectors[0]
        case "last":
            vector = vectors[-1]
    return vector / np.float32(np.linalg.norm(vector))


def embedded(worker: Worker, inputs: list[tuple[int, ...]], **fields: Any) -> Floats:
    answer = worker.embed(*inputs, **fields)
    assert answer.prompt_tokens == sum(map(len, inputs))
    return np.stack([np.frombuffer(vector, "<f4") for vector in answer.vectors])


@drawn_grid(
    model=[
        "exact_llama",
        "exact_hybrid",
        "exact_recurrent",
        "exact_sliding",
        "exact_gemma_embedding",
        "tiny_bert",
    ],
    pooling=["mean", "cls", "last"],
)
def test_vectors_are_those_of_the_tokens_pooled(
    request: pytest.FixtureRequest, model: str, pooling: Pooling
) -> None:
    path: Path = request.getfixturevalue(model)
    lengths = [length for length in LENGTHS if model != "tiny_bert" or length <= 256]
    with running_worker(path, pooling=pooling, **EXACT) as worker:
        inputs = inputs_of(lengths, min(500, worker.facts.n_vocab))
        vectors = embedded(worker, inputs)
    raw = LlamaModel(str(path))
    try:
        wanted = [pooled(vectors_of_tokens(raw, tokens), pooling) for tokens in inputs]
    finally:
        raw.close()
    # Weights of 8 bits round activations depending on the rest of the batch.
    tolerance = 0.02 if model == "tiny_bert" else 2e-4
    np.testing.assert_allclose(vectors, np.stack(wanted), atol=tolerance)


def test_a_pooling_that_is_asked_for_is_known_to_the_front(exact_llama: Path) -> None:
    with running_worker(exact_llama, pooling="none", **EXACT) as worker:
        assert worker.facts.pooling == "none"
    with running_worker(exact_llama, **EXACT) as worker:
        assert worker.facts.pooling == "mean"


def test_under_adapters_each_input_keeps_its_own_over_all_its_pieces(
    exact_llama: Path, tmp_path: Path
) -> None:
    """Also while inputs without an adapter, and a stream, are computed between its pieces."""
    path = tmp_path / "one.gguf"
    write_lora(path, llama_shapes())
    one = AdapterFile(name="one", path=str(path))
    adapted, plain = inputs_of([3 * PIECE_TOKENS + 5, 400])
    with running_worker(exact_llama, n_ctx=N_CTX, parallel=4, adapters=(one,), **EXACT) as worker:
        asked = [
            EmbedRequest(id=next_id(), inputs=(adapted,), adapters=(AdapterUse(0, 1.0),)),
            EmbedRequest(id=next_id(), inputs=(plain,)),
        ]
        worker.send(generate("hello", max_tokens=400, ignore_eos=True), *asked)
        answers: dict[int, Embedded] = {}
        while len(answers) < len(asked):
            if isinstance(event := worker.receive(), Embedded):
                answers[event.id] = event
    raw = LlamaModel(str(exact_llama))
    try:
        adapter = LlamaAdapter(raw, str(path), "one")
        wanted = [
            pooled(vectors_of_tokens(raw, adapted, adapter), "mean"),
            pooled(vectors_of_tokens(raw, plain), "mean"),
        ]
        assert not np.allclose(wanted[0], pooled(vectors_of_tokens(raw, adapted), "mean"), atol=1e-3)
    finally:
        raw.close()
    vectors = [np.frombuffer(answers[request.id].vectors[0], "<f4") for request in asked]
    np.testing.assert_allclose(np.stack(vectors), np.stack(wanted), atol=2e-4)


@pytest.fixture(scope="module")
def worker(exact_llama: Path) -> Generator[Worker]:
    with running_worker(exact_llama, n_ctx=N_CTX, parallel=4, **EXACT) as running:
        yield running


def test_lengths_are_kept_unless_they_are_normalised(worker: Worker) -> None:
    inputs = inputs_of([5, 200])
    plain = embedded(worker, inputs, normalize=False)
    lengths = np.linalg.norm(plain, axis=1, keepdims=True)
    assert not np.allclose(lengths, 1)
    np.testing.assert_allclose(embedded(worker, inputs), plain / lengths, atol=1e-5)


def test_an_input_does_not_depend_on_the_others(worker: Worker) -> None:
    inputs = inputs_of([300, 7, 90, 256])
    together = embedded(worker, inputs)
    alone = [embedded(worker, [tokens])[0] for tokens in reversed(inputs)]
    np.testing.assert_allclose(together, np.stack(alone[::-1]), atol=2e-4)


@pytest.mark.parametrize(
    ("lengths", "item", "message"),
    [([N_CTX + 1], 0, f"{N_CTX + 1} tokens.*{N_CTX} at most"), ([3, 2000], 1, "2000 tokens")],
)
def test_an_input_that_is_too_long_is_refused_by_name(
    worker: Worker, lengths: list[int], item: int, message: str
) -> None:
    with pytest.raises(ContextLengthExceeded, match=f"item {item} has {message}"):
        worker.embed(*inputs_of(lengths))
    assert len(embedded(worker, inputs_of([N_CTX]))) == 1


def test_an_empty_input_is_refused_by_name(worker: Worker) -> None:
    with pytest.raises(InvalidRequest, match="item 1 is empty"):
        worker.embed((300,), ())


def test_streams_go_on_between_pieces(exact_llama: Path) -> None:
    """A batch beside a stream is small, so that a long input cannot finish before the stream continues."""
    stream = generate("hello", max_tokens=400, ignore_eos=True)
    embed = EmbedRequest(id=next_id(), inputs=tuple(inputs_of([400])))
    with running_worker(exact_llama, n_ctx=N_CTX, parallel=4, prompt_lookup="off", **EXACT) as worker:
        worker.send(stream, embed)
        steps = 0
        while not isinstance(event := worker.receive(), Embedded):
            steps += isinstance(event, Step) and isinstance(event.events[0], Chunk)
        assert event.prompt_tokens == 400
        # Each piece is followed by a step at least.
        assert steps >= 400 // PIECE_TOKENS


def test_a_request_that_is_given_up_leaves_the_rest_in_order(worker: Worker) -> None:
    inputs = inputs_of([400])
    wanted = embedded(worker, inputs)
    for _ in range(5):
        given_up = EmbedRequest(id=next_id(), inputs=tuple(inputs_of([500] * 20)))
        worker.send(given_up, AbortRequest(id=given_up.id))
        np.testing.assert_allclose(embedded(worker, inputs), wanted, atol=1e-5)

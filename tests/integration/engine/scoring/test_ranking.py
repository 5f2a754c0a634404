"""A real worker's scores of pairs equal those of llama.cpp, one pair at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from jan_serve.errors import ContextLengthExceeded, UnsupportedOperation
from jan_serve.ipc.messages import AbortRequest, Chunk, Embedded, Step
from jan_serve.ipc.scoring import OptionsWeighed, RankRequest
from models.recipe.reranker_fixtures import RERANK_TEMPLATE
from tests.support.engine.worker import Worker, generate, next_id, running_worker
from tests.support.gguf.models import EXACT
from tests.support.gguf.raw_llama import RawLlama, raw_llama

pytestmark = pytest.mark.integration

Scores = npt.NDArray[np.floating]

QUERY = "where do people live"
# More than a group has at once, some of more than a batch, and an empty one.
DOCUMENTS = (
    "people live in homes",
    "the animal found water " * 30,
    "",
    "oil",
    *(f"number {number} of many, which other people {'made ' * (number % 7)}" for number in range(20)),
)


def outputs(answer: Embedded | OptionsWeighed) -> Scores:
    assert isinstance(answer, Embedded)
    return np.stack([np.frombuffer(vector, "<f4") for vector in answer.vectors])


def pair_of_template(document: str, query: str = QUERY) -> str:
    return RERANK_TEMPLATE.replace("{query}", query).replace("{document}", document)


def encoder_pair(raw: RawLlama, query: str, document: str) -> list[int]:
    special = raw.model.vocab.special
    start, end = special["bos"].id, special["sep"].id
    words = [raw.tokens(text, parse_special=False) for text in (query, document)]
    return [start, *words[0], end, *words[1], end]


def test_an_encoder_scores_pairs_as_alone(exact_reranker: Path) -> None:
    documents = [document[:300] for document in DOCUMENTS]
    with running_worker(exact_reranker, **EXACT) as worker:
        scores = outputs(worker.rank(QUERY, *documents))
    with raw_llama(exact_reranker) as raw:
        wanted = [raw.scores(encoder_pair(raw, QUERY, document), 1) for document in documents]
    # Of the scores that clients see: ggml rounds GELU, and the logits with it, to 16 bits. How much stays of that
    # depends on the processor's products.
    np.testing.assert_allclose(sigmoid(scores), sigmoid(np.stack(wanted)), atol=5e-4)


def sigmoid(logits: Scores) -> Scores:
    return 1 / (1 + np.exp(-logits))


def test_a_decoder_scores_pairs_as_alone(decoder_reranker: Path) -> None:
    """Its query is read once, and all tokens but the last one without the head."""
    with running_worker(decoder_reranker, **EXACT) as worker:
        answer = worker.rank(QUERY, *DOCUMENTS, template=RERANK_TEMPLATE)
        again = worker.rank(QUERY, *reversed(DOCUMENTS[:3]), template=RERANK_TEMPLATE)
        alone = worker.rank(QUERY, DOCUMENTS[1], template=RERANK_TEMPLATE)
    with raw_llama(decoder_reranker) as raw:
        wanted = np.stack([raw.scores(raw.tokens(pair_of_template(one)), 2) for one in DOCUMENTS])
    np.testing.assert_allclose(outputs(answer), wanted, atol=1e-4)
    np.testing.assert_allclose(outputs(again), wanted[2::-1], atol=1e-4)
    np.testing.assert_allclose(outputs(alone), wanted[1:2], atol=1e-4)


def test_a_short_document_leaves_room_for_a_longer_one(decoder_reranker: Path) -> None:
    """llama.cpp ends the process for a batch that is longer than the context was made for."""
    with running_worker(decoder_reranker, **EXACT) as worker:
        worker.rank("a", "b", template="{query}{document}")
        answer = worker.rank("a", "people live in homes " * 10, template="{query}{document}")
    assert outputs(answer).shape == (1, 2) and answer.prompt_tokens > 20


def test_a_writer_is_judged_by_what_it_would_write(writing_reranker: Path) -> None:
    with running_worker(writing_reranker, n_ctx=1024, **EXACT) as worker:
        answer = worker.rank(QUERY, *DOCUMENTS, template=RERANK_TEMPLATE, labels=("yes", "no"))
    assert isinstance(answer, OptionsWeighed)
    with raw_llama(writing_reranker) as raw:
        for document, weights in zip(DOCUMENTS, answer.answers, strict=True):
            row = raw.tokens(pair_of_template(document))
            assert weights.is_exact
            for label, found in zip(("yes", "no"), weights.log_masses, strict=True):
                assert found >= raw.path_log_probability(row, raw.tokens(label)) - 1e-4


def test_a_query_cannot_place_the_document(decoder_reranker: Path) -> None:
    query = "what is {document} and {query}"
    with running_worker(decoder_reranker, **EXACT) as worker:
        scores = outputs(worker.rank(query, "oil", "air", template=RERANK_TEMPLATE))
    with raw_llama(decoder_reranker) as raw:
        before, after = RERANK_TEMPLATE.split("{query}")
        rows = [raw.tokens(before + query + after.replace("{document}", one)) for one in ("oil", "air")]
        np.testing.assert_allclose(scores, np.stack([raw.scores(row, 2) for row in rows]), atol=1e-4)


def test_the_first_document_that_is_too_long_is_named(exact_reranker: Path) -> None:
    long = "people live in homes " * 100
    with running_worker(exact_reranker, **EXACT) as worker:
        with pytest.raises(ContextLengthExceeded) as error:
            worker.rank(QUERY, "oil", long, "air", long + "and in water")
        assert (error.value.param, error.value.item) == ("documents", 1)
        assert error.value.n_ctx == worker.facts.n_ctx
        cut = outputs(worker.rank(QUERY, "oil", long, truncate=True))
        short = outputs(worker.rank(QUERY, "people live", long, max_document_tokens=2))
        kept = outputs(worker.rank(QUERY, "people live", "people live"))
        assert len(cut) == 2
        np.testing.assert_allclose(short, kept, atol=1e-4)
        with pytest.raises(ContextLengthExceeded):
            worker.rank(long, "oil", truncate=True)


def test_an_embedding_model_without_a_head_is_refused(tiny_bert: Path) -> None:
    with running_worker(tiny_bert) as worker, pytest.raises(UnsupportedOperation):
        worker.rank(QUERY, "oil", labels=("yes", "no"))


def test_pairs_are_computed_between_the_steps_of_a_stream(writing_reranker: Path) -> None:
    stream = generate("hello", max_tokens=300, ignore_eos=True)
    rank = RankRequest(
        id=next_id(), query=QUERY, documents=DOCUMENTS, template=RERANK_TEMPLATE, labels=("yes", "no")
    )
    with running_worker(writing_reranker, n_ctx=1024, parallel=4, prompt_lookup="off", **EXACT) as worker:
        worker.send(stream, rank)
        steps = 0
        while not isinstance(event := worker.receive(), OptionsWeighed):
            steps += isinstance(event, Step) and isinstance(event.events[0], Chunk)
        assert steps >= 3


def test_a_request_that_is_given_up_leaves_the_rest_in_order(decoder_reranker: Path) -> None:
    with running_worker(decoder_reranker, **EXACT) as worker:
        wanted = outputs(worker.rank(QUERY, *DOCUMENTS, template=RERANK_TEMPLATE))
        for _ in range(5):
            given_up = RankRequest(
                id=next_id(), query="other", documents=DOCUMENTS * 5, template=RERANK_TEMPLATE
            )
            worker.send(given_up, AbortRequest(id=given_up.id))
            np.testing.assert_allclose(rank_again(worker), wanted, atol=1e-4)


def rank_again(worker: Worker) -> Scores:
    return outputs(worker.rank(QUERY, *DOCUMENTS, template=RERANK_TEMPLATE))

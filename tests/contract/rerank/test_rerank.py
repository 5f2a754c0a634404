"""Reranking over a fake model that scores a document by its length."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.dialects.rerank.outline import PLAIN
from jan_serve.dialects.rerank.routes import best_first
from tests.support.engine.fake_client import FakeClient, FakeModels, fake_facts
from tests.support.servers.fronts import http_client

DOCUMENTS = ["ab", "", "abcd", "x"]
BODY: dict[str, Any] = {"query": "which", "documents": DOCUMENTS}


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def reranker(**facts: Any) -> FakeModels:
    return FakeModels(
        FakeClient(facts=fake_facts(**{"pooling": "rank", "is_embedding_model": True, **facts}))
    )


async def call(path: str, body: Any, models: FakeModels | None = None) -> tuple[int, Any]:
    async with http_client(models or reranker()) as client:
        response = await client.post(path, json=body)
    return response.status_code, response.json()


anyio = pytest.mark.anyio


@anyio
@pytest.mark.parametrize("path", PLAIN)
async def test_the_best_document_comes_first(path: str) -> None:
    status, reply = await call(path, BODY | {"model": "fake"})
    assert status == 200
    tokens = sum(map(len, DOCUMENTS)) + len("which")
    assert reply == {
        "model": "fake",
        "object": "list",
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        "results": [
            {"index": index, "relevance_score": pytest.approx(sigmoid(len(DOCUMENTS[index])))}
            for index in (2, 0, 3, 1)
        ],
    }


@anyio
async def test_documents_may_be_objects_and_come_back_on_request() -> None:
    body = {
        "query": "q",
        "documents": ["a", {"text": "bcd", "title": "t"}],
        "return_documents": True,
        "top_n": 1,
    }
    _, reply = await call("/v1/rerank", body)
    assert [item["document"] for item in reply["results"]] == [{"text": "bcd"}]


@anyio
async def test_raw_scores_are_the_models_own() -> None:
    _, reply = await call("/rerank", BODY | {"raw_scores": True})
    assert [item["relevance_score"] for item in reply["results"]] == [4.0, 2.0, 1.0, 0.0]


@anyio
async def test_texts_select_the_form_of_text_embeddings_inference() -> None:
    body = {"query": "q", "texts": ["a", "bcd"], "return_text": True, "raw_scores": True, "truncate": True}
    assert await call("/rerank", body) == (
        200,
        [{"index": 1, "score": 3.0, "text": "bcd"}, {"index": 0, "score": 1.0, "text": "a"}],
    )
    _, reply = await call("/rerank", {"query": "q", "texts": ["a"]})
    assert reply == [{"index": 0, "score": pytest.approx(sigmoid(1.0))}]


@anyio
async def test_coheres_second_version() -> None:
    status, reply = await call("/v2/rerank", BODY | {"model": "fake", "top_n": 2})
    assert status == 200 and len(reply.pop("id")) == 36
    assert reply["meta"]["api_version"] == {"version": "2"}
    assert [item["index"] for item in reply["results"]] == [2, 0]


@anyio
async def test_open_webuis_external_reranker() -> None:
    """It sends these four members, and reads the scores by `index`."""
    body = {"model": "fake", "query": "q", "documents": ["a", "bcd"], "top_n": 2}
    _, reply = await call("/v1/rerank", body)
    scores = [item["relevance_score"] for item in sorted(reply["results"], key=lambda item: item["index"])]
    assert scores == [pytest.approx(sigmoid(1)), pytest.approx(sigmoid(3))]


@anyio
async def test_a_writing_reranker_is_judged_by_its_words() -> None:
    models = FakeModels(FakeClient(facts=fake_facts(chat_templates={"rerank": "{query} {document}"})))
    _, reply = await call("/rerank", BODY, models)
    assert [item["index"] for item in reply["results"]] == [2, 0, 3, 1]
    assert reply["results"][0]["relevance_score"] == pytest.approx(sigmoid(4))


REFUSED: dict[str, tuple[Any, str]] = {
    "no documents": ({"query": "q"}, "documents: at least one"),
    "an empty list": ({"query": "q", "documents": []}, "documents: at least one"),
    "no texts": ({"query": "q", "texts": []}, "texts: at least one"),
    "both forms": ({"query": "q", "texts": ["a"], "documents": ["a"]}, "not both"),
    "an empty query": ({"query": " ", "documents": ["a"]}, "query: is empty"),
    "too many": (
        {"query": "q", "documents": ["a"] * 10_000},
        "documents: has 10000 items, the limit is 1000",
    ),
}


@anyio
@pytest.mark.parametrize("case", REFUSED)
async def test_a_wrong_request_is_told_what_is_wrong(case: str) -> None:
    body, words = REFUSED[case]
    status, reply = await call("/v1/rerank", body)
    assert status == 400
    assert words in reply["error"]["message"]


@anyio
@pytest.mark.parametrize(
    "member",
    [
        {"documents": [1]},
        {"documents": [{"title": "no text"}]},
        {"documents": "a"},
        {"top_n": 0},
        {"top_n": "3"},
        {"query": None},
        {"rank_fields": ["title"]},
        {"truncation_direction": "left"},
    ],
)
async def test_a_broken_schema_is_refused(member: dict[str, Any]) -> None:
    status, reply = await call("/rerank", BODY | member)
    assert status == 422
    assert next(iter(member)) in str(reply["detail"])


@anyio
@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"is_embedding_model": False, "pooling": "mean"}, "no scoring head, and no template"),
        ({"pooling": "mean"}, "makes embeddings"),
    ],
)
async def test_a_model_that_cannot_rank_is_refused_with_the_reason(facts: dict[str, Any], words: str) -> None:
    status, reply = await call("/rerank", BODY, reranker(**facts))
    assert status == 400
    assert words in reply["error"]["message"]
    status, reply = await call("/v2/rerank", BODY, reranker(**facts))
    assert status == 400
    assert list(reply) == ["message"] and words in reply["message"]


@given(
    raw=st.lists(st.floats(-200, 200), min_size=1, max_size=30),
    top_n=st.none() | st.integers(1, 40),
    raw_scores=st.booleans(),
)
def test_order_and_number(raw: list[float], top_n: int | None, raw_scores: bool) -> None:
    found = best_first(raw, top_n, raw=raw_scores)
    assert len(found) == min(len(raw), top_n or len(raw))
    scores = [score for _, score in found]
    assert scores == sorted(scores, reverse=True)
    left_out = set(range(len(raw))) - {index for index, _ in found}
    assert all(raw[index] <= raw[found[-1][0]] for index in left_out)
    assert raw_scores or all(0.0 <= score <= 1.0 for score in scores)

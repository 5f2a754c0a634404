"""Clients of reranking and of typed decisions, as their users call them: `run_scoring.py CASE URL`."""

from __future__ import annotations

import sys
from collections.abc import Callable

QUERY = "where do people live"
DOCUMENTS = ["people live in homes", "oil", "the animal found water"]


def cohere_v2(url: str) -> None:
    import cohere

    client = cohere.ClientV2(api_key="unused", base_url=url)
    reply = client.rerank(model="reranker", query=QUERY, documents=DOCUMENTS, top_n=2)
    scores = [item.relevance_score for item in reply.results]
    assert len(scores) == 2 and scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    try:
        client.rerank(model="reranker", query=QUERY, documents=[])
    except cohere.BadRequestError as error:
        assert "documents" in str(error.body)
    else:
        raise AssertionError("an empty list was accepted")


def cohere_v1(url: str) -> None:
    import cohere

    client = cohere.Client(api_key="unused", base_url=url)
    reply = client.rerank(model="reranker", query=QUERY, documents=DOCUMENTS, return_documents=True)
    assert sorted(item.index for item in reply.results) == [0, 1, 2]
    best = reply.results[0]
    assert best.document is not None and best.document.text == DOCUMENTS[best.index]


def llama_index_jina(url: str) -> None:
    from llama_index.core.schema import NodeWithScore, TextNode
    from llama_index.postprocessor.jinaai_rerank import JinaRerank

    nodes = [NodeWithScore(node=TextNode(text=text)) for text in DOCUMENTS]
    reranker = JinaRerank(top_n=2, model="reranker", base_url=f"{url}/v1", api_key="unused")
    found = reranker.postprocess_nodes(nodes, query_str=QUERY)
    scores = [node.score or 0.0 for node in found]
    assert len(scores) == 2 and scores == sorted(scores, reverse=True)
    assert all(0 < score < 1 for score in scores)


def llama_index_tei(url: str) -> None:
    """It names no model: the server's default one ranks."""
    from llama_index.core.schema import NodeWithScore, TextNode
    from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

    nodes = [NodeWithScore(node=TextNode(text=text)) for text in DOCUMENTS]
    found = TextEmbeddingInference(base_url=url, top_n=3).postprocess_nodes(nodes, query_str=QUERY)
    scores = [node.score or 0.0 for node in found]
    assert len(scores) == 3 and scores == sorted(scores, reverse=True)
    assert all(0 < score < 1 for score in scores)


def open_webui(url: str) -> None:
    """Its external reranker, in the environment of the program itself."""
    from open_webui.retrieval.models.external import ExternalReranker

    reranker = ExternalReranker(api_key="unused", url=f"{url}/v1/rerank", model="reranker")
    scores = reranker.predict([(QUERY, text) for text in DOCUMENTS])
    assert scores is not None and len(scores) == len(DOCUMENTS)
    assert len(set(scores)) == len(scores) and all(0 < score < 1 for score in scores)
    again = reranker.predict([(QUERY, text) for text in reversed(DOCUMENTS)])
    assert again is not None
    assert all(abs(one - other) < 1e-4 for one, other in zip(scores, reversed(again), strict=True))


def typesafe(url: str) -> None:
    from typesafe_sdk import Choice, Noul, Score, TypeSafeClient

    with TypeSafeClient(api_key="unused", base_url=url) as client:
        reply = client.system_one(
            model="chat",
            state={"document": "I was charged twice. Please fix this."},
            questions={
                "billing": Noul(instructions="Is this about billing?"),
                "tone": Choice(
                    instructions="What is the tone?", criteria={"calm": None, "angry": "Hostile."}
                ),
                "urgency": Score(instructions="How urgent is this?", criteria=["can wait", "today"]),
            },
        )
    assert 0 <= reply.nouls["billing"].noul <= 1
    tone = reply.choices["tone"]
    assert tone.choice in ("calm", "angry") and abs(sum(tone.probabilities.values()) - 1) < 1e-6
    assert 0 <= reply.scores["urgency"].score <= 1


CASES: dict[str, Callable[[str], None]] = {
    "cohere_v2": cohere_v2,
    "cohere_v1": cohere_v1,
    "llama_index_jina": llama_index_jina,
    "llama_index_tei": llama_index_tei,
    "open_webui": open_webui,
    "typesafe": typesafe,
}

if __name__ == "__main__":
    CASES[sys.argv[1]](sys.argv[2])

"""Scores as the answers of all forms. Pure."""

from __future__ import annotations

from jan_serve.dialects.rerank.parse import RankJob
from jan_serve.dialects.rerank.wire import RankedDocument, TextScore
from jan_serve.generation.scoring.ranking import Ranked, probability


def best_first(job: RankJob, ranked: Ranked) -> list[tuple[int, float]]:
    """The index and the score of each document to return. Those of equal scores keep their order."""
    order = sorted(range(len(ranked.raw)), key=lambda index: -ranked.raw[index])[: job.top_n]
    return [(i, ranked.raw[i] if job.raw_scores else probability(ranked.raw[i])) for i in order]


def documents(job: RankJob, ranked: Ranked) -> list[RankedDocument]:
    found: list[RankedDocument] = []
    for index, score in best_first(job, ranked):
        item: RankedDocument = {"index": index, "relevance_score": score}
        if job.with_documents:
            item["document"] = {"text": job.documents[index]}
        found.append(item)
    return found


def plain_reply(job: RankJob, ranked: Ranked) -> dict[str, object]:
    usage = {"prompt_tokens": ranked.prompt_tokens, "total_tokens": ranked.prompt_tokens}
    return {
        "model": job.model or ranked.model,
        "object": "list",
        "usage": usage,
        "results": documents(job, ranked),
    }


def text_scores(job: RankJob, ranked: Ranked) -> list[TextScore]:
    found: list[TextScore] = []
    for index, score in best_first(job, ranked):
        item: TextScore = {"index": index, "score": score}
        if job.with_documents:
            item["text"] = job.documents[index]
        found.append(item)
    return found


def cohere_reply(job: RankJob, ranked: Ranked, reply_id: str) -> dict[str, object]:
    meta = {
        "api_version": {"version": "2"},
        "billed_units": {"search_units": 1},
        "tokens": {"input_tokens": ranked.prompt_tokens, "output_tokens": 0},
    }
    return {"id": reply_id, "results": documents(job, ranked), "meta": meta}

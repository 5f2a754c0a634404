"""The routes that rank documents: requests of all forms become one job, and its scores the answer of each form."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal, NotRequired

import msgspec
from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.dialects.dialect import Services
from jan_serve.dialects.rerank.outline import COHERE, PLAIN
from jan_serve.dialects.shared.answers import on_model
from jan_serve.dialects.shared.error_responses import DEFAULT_ERRORS, error_responses
from jan_serve.dialects.shared.limits import MAX_DOCUMENTS
from jan_serve.dialects.shared.wire_types import AtMost, Between, FirstError, Int, WireModel
from jan_serve.errors import InvalidRequest
from jan_serve.generation.scoring import Ranked, probability, rank
from jan_serve.generation.service import GenerationService
from jan_serve.http.json_body import JsonRoute
from jan_serve.http.replies import json_reply


class DocumentObject(WireModel):
    """A document as an object; members other than `text` are ignored."""

    text: str


Documents = Annotated[list[str | DocumentObject], FirstError()]
TopN = Annotated[Annotated[Int, Between(1)] | None, Field(description="The best ones only.")]


class RerankRequest(WireModel):
    """Documents to rank: `documents` as llama-server and Jina have it, or `texts` as Text Embeddings Inference does.

    max_chunks_per_doc has no effect: documents are never cut into several.
    """

    query: str
    documents: Annotated[Documents, AtMost(MAX_DOCUMENTS, "documents")] | None = None
    texts: Annotated[Documents, AtMost(MAX_DOCUMENTS, "texts")] | None = None
    model: str | None = None
    top_n: TopN = None
    return_documents: bool | None = False
    return_text: bool | None = False
    raw_scores: Annotated[
        bool | None, Field(description="The model's own scores, which have no bounds, instead of 0 to 1.")
    ] = False
    truncate: Annotated[
        bool | None,
        Field(description="Cut documents that are too long for the model, instead of refusing them."),
    ] = None
    truncation: Annotated[bool | None, Field(description="Jina's name of `truncate`.")] = None
    truncation_direction: Literal["Right", "right"] | None = None
    max_tokens_per_doc: Annotated[
        Annotated[Int, Between(1)] | None, Field(description="Cut documents there.")
    ] = None
    rank_fields: list[Literal["text"]] | None = None


class CohereRerankRequest(WireModel):
    """Cohere's second version. `priority` has no effect. Documents are cut at 4096 tokens unless it says otherwise."""

    model: str | None = None
    query: str
    documents: Annotated[Documents, AtMost(MAX_DOCUMENTS, "documents")]
    top_n: TopN = None
    max_tokens_per_doc: Annotated[Int, Between(1)] | None = 4096
    return_documents: bool | None = False


class RankedText(TypedDict):
    text: str


class RankedDocument(TypedDict):
    """index: position of the document in the request."""

    index: int
    relevance_score: float
    document: NotRequired[RankedText]


class RerankUsage(TypedDict):
    prompt_tokens: int
    total_tokens: int


class RerankReply(BaseModel):
    """The best document first."""

    model: str
    object: Literal["list"]
    usage: RerankUsage
    results: list[RankedDocument]


class TextScore(TypedDict):
    """index: position of the document in the request."""

    index: int
    score: float
    text: NotRequired[str]


class CohereVersion(TypedDict):
    version: str


class CohereUnits(TypedDict):
    search_units: int


class CohereTokens(TypedDict):
    input_tokens: int
    output_tokens: int


class CohereMeta(TypedDict):
    api_version: CohereVersion
    billed_units: CohereUnits
    tokens: CohereTokens


class CohereRerankReply(BaseModel):
    """The best document first."""

    id: str
    results: list[RankedDocument]
    meta: CohereMeta


class CohereError(BaseModel):
    message: str


class RankJob(msgspec.Struct, frozen=True):
    """top_n: None for all. max_document_tokens: None for no cut but that of `truncate`."""

    model: str | None
    query: str
    documents: tuple[str, ...]
    top_n: int | None = None
    with_documents: bool = False
    raw_scores: bool = False
    truncate: bool = False
    max_document_tokens: int | None = None


def plain_job(body: RerankRequest) -> RankJob:
    if body.documents is not None and body.texts is not None:
        raise InvalidRequest("texts: send `documents` or `texts`, not both", param="texts")
    field = "documents" if body.texts is None else "texts"
    documents = _texts(body.documents if body.texts is None else body.texts, field)
    return RankJob(
        model=body.model,
        query=_query(body.query),
        documents=documents,
        top_n=body.top_n,
        with_documents=bool(body.return_documents or body.return_text),
        raw_scores=bool(body.raw_scores),
        truncate=bool(body.truncate or body.truncation),
        max_document_tokens=body.max_tokens_per_doc,
    )


def cohere_job(body: CohereRerankRequest) -> RankJob:
    """Cohere cuts documents, so none is refused for its length. Raises InvalidRequest."""
    return RankJob(
        model=body.model,
        query=_query(body.query),
        documents=_texts(body.documents, "documents"),
        top_n=body.top_n,
        with_documents=bool(body.return_documents),
        truncate=True,
        max_document_tokens=body.max_tokens_per_doc,
    )


def _query(query: str) -> str:
    if not query.strip():
        raise InvalidRequest("query: is empty", param="query")
    return query


def _texts(documents: Sequence[str | DocumentObject] | None, field: str) -> tuple[str, ...]:
    if not documents:
        raise InvalidRequest(f"{field}: at least one document is needed", param=field)
    return tuple(item if isinstance(item, str) else item.text for item in documents)


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


def rerank_router(services: Services) -> APIRouter:
    router = APIRouter(route_class=JsonRoute, tags=["Reranking"])
    service = GenerationService(services.models, services.preparer, services.running)

    async def ranked(request: Request, job: RankJob) -> Ranked:
        work = partial(
            rank,
            query=job.query,
            documents=job.documents,
            max_document_tokens=job.max_document_tokens,
            truncate=job.truncate,
        )
        return await on_model(request, service, job.model, work)

    async def rerank(request: Request, body: RerankRequest) -> Response:
        """Score documents by how well they answer a query. A list of scores if the body has `texts`."""
        job = plain_job(body)
        result = await ranked(request, job)
        return json_reply(plain_reply(job, result) if body.texts is None else text_scores(job, result))

    for path in PLAIN:
        name = "rerank" + path.replace("/", "_")
        router.add_api_route(
            path,
            rerank,
            methods=["POST"],
            summary="Rerank",
            name=name,
            responses=DEFAULT_ERRORS,
            response_model=RerankReply | list[TextScore],
        )

    @router.post(
        COHERE,
        summary="Rerank (Cohere)",
        responses=error_responses(CohereError),
        response_model=CohereRerankReply,
    )
    async def rerank_cohere(request: Request, body: CohereRerankRequest) -> Response:
        """Score documents by how well they answer a query, as Cohere does."""
        job = cohere_job(body)
        return json_reply(cohere_reply(job, await ranked(request, job), str(uuid.uuid4())))

    return router

"""The routes that rank documents, with the requests and the answers of each form."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal, NotRequired

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.dialects.dialect import Services
from jan_serve.dialects.rerank.outline import COHERE, PLAIN
from jan_serve.dialects.shared.answers import on_model
from jan_serve.dialects.shared.documented_errors import DEFAULT_ERRORS, documented_errors
from jan_serve.dialects.shared.limits import MAX_DOCUMENTS
from jan_serve.dialects.shared.wire_types import AtMost, Between, FirstError, Int, WireModel, wrong
from jan_serve.generation.ranking import Ranked, probability, rank
from jan_serve.generation.service import GenerationService
from jan_serve.http.json_body import JsonRoute
from jan_serve.http.replies import json_reply


class DocumentObject(WireModel):
    """A document as an object; members other than `text` are ignored."""

    text: str


Documents = Annotated[list[str | DocumentObject], FirstError()]


class _RankFields(WireModel):
    model: str | None = None
    query: str
    top_n: Annotated[Annotated[Int, Between(1)] | None, Field(description="The best ones only.")] = None
    return_documents: bool | None = False
    max_tokens_per_doc: Annotated[
        Annotated[Int, Between(1)] | None, Field(description="Cut documents there.")
    ] = None


class RerankRequest(_RankFields):
    """Documents to rank: `documents` as llama-server and Jina have it, or `texts` as Text Embeddings Inference does.

    max_chunks_per_doc has no effect: documents are never cut into several.
    """

    documents: Annotated[Documents, AtMost(MAX_DOCUMENTS, "documents")] | None = None
    texts: Annotated[Documents, AtMost(MAX_DOCUMENTS, "texts")] | None = None
    return_text: bool | None = False
    raw_scores: Annotated[
        bool | None, Field(description="The model's own scores, which have no bounds, instead of 0 to 1.")
    ] = False
    truncate: bool | None = Field(
        None, description="Cut documents that are too long for the model, instead of refusing them."
    )
    truncation: Annotated[bool | None, Field(description="Jina's name of `truncate`.")] = None
    truncation_direction: Literal["Right", "right"] | None = None
    rank_fields: list[Literal["text"]] | None = None


class CohereRerankRequest(_RankFields):
    """Cohere's second version. `priority` has no effect. Documents are cut at 4096 tokens unless it says otherwise."""

    documents: Annotated[Documents, AtMost(MAX_DOCUMENTS, "documents")]
    max_tokens_per_doc: Annotated[Int, Between(1)] | None = 4096


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


def texts_of(documents: Sequence[str | DocumentObject] | None, field: str) -> tuple[str, ...]:
    if not documents:
        raise wrong(field, "at least one document is needed")
    return tuple(item if isinstance(item, str) else item.text for item in documents)


def best_first(scores: Sequence[float], top_n: int | None, *, raw: bool = False) -> list[tuple[int, float]]:
    """The index and the score of each document to return. Those of equal scores keep their order."""
    order = sorted(range(len(scores)), key=lambda index: -scores[index])[:top_n]
    return [(index, scores[index] if raw else probability(scores[index])) for index in order]


def ranked_documents(best: Sequence[tuple[int, float]], texts: Sequence[str] | None) -> list[RankedDocument]:
    """texts: None shows none."""
    found: list[RankedDocument] = []
    for index, score in best:
        item: RankedDocument = {"index": index, "relevance_score": score}
        if texts is not None:
            item["document"] = {"text": texts[index]}
        found.append(item)
    return found


def text_scores(best: Sequence[tuple[int, float]], texts: Sequence[str] | None) -> list[TextScore]:
    """texts: None shows none."""
    found: list[TextScore] = []
    for index, score in best:
        item: TextScore = {"index": index, "score": score}
        if texts is not None:
            item["text"] = texts[index]
        found.append(item)
    return found


def rerank_router(services: Services) -> APIRouter:
    router = APIRouter(route_class=JsonRoute, tags=["Reranking"])
    service = GenerationService(services.models, services.preparer, services.running)

    async def ranked(request: Request, body: _RankFields, texts: Sequence[str], *, truncate: bool) -> Ranked:
        if not body.query.strip():
            raise wrong("query", "is empty")
        cut = body.max_tokens_per_doc
        work = partial(rank, query=body.query, documents=texts, max_document_tokens=cut, truncate=truncate)
        return await on_model(request, service, body.model, work)

    async def rerank(request: Request, body: RerankRequest) -> Response:
        """Score documents by how well they answer a query. A list of scores if the body has `texts`."""
        if body.documents is not None and body.texts is not None:
            raise wrong("texts", "send `documents` or `texts`, not both")
        is_plain = body.texts is None
        texts = texts_of(body.documents, "documents") if is_plain else texts_of(body.texts, "texts")
        found = await ranked(request, body, texts, truncate=bool(body.truncate or body.truncation))
        best = best_first(found.raw, body.top_n, raw=bool(body.raw_scores))
        shown = texts if body.return_documents or body.return_text else None
        if not is_plain:
            return json_reply(text_scores(best, shown))
        reply = {
            "model": body.model or found.model,
            "object": "list",
            "usage": {"prompt_tokens": found.prompt_tokens, "total_tokens": found.prompt_tokens},
            "results": ranked_documents(best, shown),
        }
        return json_reply(reply)

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
        responses=documented_errors(CohereError),
        response_model=CohereRerankReply,
    )
    async def rerank_cohere(request: Request, body: CohereRerankRequest) -> Response:
        """Score documents by how well they answer a query, as Cohere does."""
        texts = texts_of(body.documents, "documents")
        # Cohere cuts documents, so none is refused for its length.
        found = await ranked(request, body, texts, truncate=True)
        reply = {
            "id": str(uuid.uuid4()),
            "results": ranked_documents(
                best_first(found.raw, body.top_n), texts if body.return_documents else None
            ),
            "meta": {
                "api_version": {"version": "2"},
                "billed_units": {"search_units": 1},
                "tokens": {"input_tokens": found.prompt_tokens, "output_tokens": 0},
            },
        }
        return json_reply(reply)

    return router

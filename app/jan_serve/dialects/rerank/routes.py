"""The routes that rank documents."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.dialects.dialect import Services
from jan_serve.dialects.rerank.head import COHERE, PLAIN
from jan_serve.dialects.rerank.parse import RankJob, cohere_job, plain_job
from jan_serve.dialects.rerank.render import cohere_reply, plain_reply, text_scores
from jan_serve.dialects.rerank.wire import (
    CohereError,
    CohereRerankReply,
    CohereRerankRequest,
    RerankReply,
    RerankRequest,
    TextScore,
)
from jan_serve.dialects.shared.default_errors import ERROR_RESPONSES
from jan_serve.generation.scoring.ranking import Ranked, rank
from jan_serve.generation.service import GenerationService
from jan_serve.http.disconnect import while_connected
from jan_serve.http.json_body import JsonRoute
from jan_serve.http.replies import json_reply
from jan_serve.http.request_record import record_of

_COHERE_ERROR: Final[dict[str, Any]] = {
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/CohereError"}}}
}
_COHERE_ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    status: {
        "description": response["description"],
        **({"model": CohereError} if status == 400 else _COHERE_ERROR),
    }
    for status, response in ERROR_RESPONSES.items()
}


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
        result = await while_connected(request, service.with_model(job.model, work))
        record = record_of(request.scope)
        record.model, record.prompt_tokens = result.model, result.prompt_tokens
        return result

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
            responses=ERROR_RESPONSES,
            response_model=RerankReply | list[TextScore],
        )

    @router.post(
        COHERE, summary="Rerank (Cohere)", responses=_COHERE_ERRORS, response_model=CohereRerankReply
    )
    async def rerank_cohere(request: Request, body: CohereRerankRequest) -> Response:
        """Score documents by how well they answer a query, as Cohere does."""
        job = cohere_job(body)
        return json_reply(cohere_reply(job, await ranked(request, job), str(uuid.uuid4())))

    return router

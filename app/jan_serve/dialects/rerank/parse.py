"""Requests of all forms as one job. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jan_serve.dialects.rerank.wire import CohereRerankRequest, DocumentObject, RerankRequest
from jan_serve.errors import InvalidRequest


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
    """Raises InvalidRequest."""
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

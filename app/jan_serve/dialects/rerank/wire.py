"""Wire types of reranking."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from jan_serve.dialects.shared.limits import MAX_DOCUMENTS
from jan_serve.dialects.shared.wire_types import AtMost, Between, FirstError, Int, WireModel


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
    """index: in the request."""

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
    """index: in the request."""

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
    """Every refusal and failure."""

    message: str

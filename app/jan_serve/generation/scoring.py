"""Texts and token sequences as vectors, and as scores of reward models and rerankers. Lengths are tokens."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from jan_serve.core.models import ModelFacts
from jan_serve.core.trace import current_trace
from jan_serve.errors import InvalidRequest, UnsupportedOperation
from jan_serve.generation.ports import EngineClient
from jan_serve.generation.prepare import chosen_adapters
from jan_serve.generation.service import LeasedModel
from jan_serve.ipc.messages import Embedded, EmbedRequest
from jan_serve.ipc.scoring import OptionsWeighed, RankRequest

FLOAT_BYTES = 4


class Vectors(msgspec.Struct, frozen=True, kw_only=True):
    """One vector per input, in their order, as the bytes of `dimensions` float32 each, little endian.

    score_at: index of the score; None if the model has no single score.
    """

    model: str
    vectors: tuple[bytes, ...]
    dimensions: int
    prompt_tokens: int
    score_at: int | None = None


async def embed(
    model: LeasedModel, inputs: Sequence[str | tuple[int, ...]], dimensions: int | None = None
) -> Vectors:
    """Vectors of unit length, of a model that pools or can be loaded to pool.

    dimensions: keep the first ones, and scale them to unit length again. Cancelling the call aborts the work.
    Raises InvalidRequest (an input over the context, dimensions out of range), UnsupportedOperation and EngineFailure.
    """
    current_trace().operation = "embeddings"
    client = model.client
    if client.facts.pooling == "rank":
        raise _unsupported(client.name, "ranks texts; it does not embed them.")
    refuse_unpooled(client)
    n_embd = client.facts.n_embd
    if dimensions is not None and dimensions > n_embd:
        raise InvalidRequest(
            f"dimensions: must be from 1 to {n_embd} for the model `{client.name}`, got {dimensions}",
            param="dimensions",
        )
    request = EmbedRequest(inputs=tuple(inputs), adapters=chosen_adapters(None, client))
    embedded = await model.wait(client.ask(request))
    vectors = embedded.vectors
    if dimensions is not None and dimensions < embedded.dimensions:
        vectors = tuple(shorten(vector, dimensions) for vector in vectors)
    return Vectors(
        model=client.name,
        vectors=vectors,
        dimensions=min(dimensions or embedded.dimensions, embedded.dimensions),
        prompt_tokens=embedded.prompt_tokens,
    )


def refuse_unpooled(client: EngineClient) -> None:
    """Raises UnsupportedOperation for a model whose settings ask for a vector per token."""
    if client.facts.pooling == "none":
        raise _unsupported(
            client.name,
            "has the pooling `none`, which makes a vector for each token, and this route answers with one for each"
            " input. Set its pooling to mean, cls or last.",
        )


def _unsupported(model: str, reason: str) -> UnsupportedOperation:
    return UnsupportedOperation(f"The model `{model}` {reason}", param="model")


def to_floats(vector: bytes) -> tuple[float, ...]:
    """The components of a vector."""
    return struct.unpack(f"<{len(vector) // FLOAT_BYTES}f", vector)


def shorten(vector: bytes, dimensions: int) -> bytes:
    """The first components, scaled to unit length (all zero stays zero), as Matryoshka embeddings allow."""
    kept = to_floats(vector[: dimensions * FLOAT_BYTES])
    norm = math.sqrt(math.fsum(value * value for value in kept))
    if norm == 0.0:
        return vector[: dimensions * FLOAT_BYTES]
    return struct.pack(f"<{dimensions}f", *(value / norm for value in kept))


async def pool(model: LeasedModel, inputs: Sequence[str | tuple[int, ...]]) -> Vectors:
    """Vectors of each input as a reward, reranking or embedding model pools it, not normalised.

    Special tokens in texts are parsed: reward models score chats rendered with their template.
    Raises InvalidRequest (an input that is empty or over the context), UnsupportedOperation (a generative model) and
    EngineFailure.
    """
    client = model.client
    if not client.facts.is_embedding_model:
        raise _unsupported(
            client.name, "generates text; pooling needs a reward, reranking or embedding model."
        )
    refuse_unpooled(client)
    request = EmbedRequest(inputs=tuple(inputs), normalize=False, parse_special=True)
    embedded = await model.wait(client.ask(request))
    return Vectors(
        model=client.name,
        vectors=embedded.vectors,
        dimensions=embedded.dimensions,
        score_at=score_index(client.facts, embedded.dimensions),
        prompt_tokens=embedded.prompt_tokens,
    )


def score_index(facts: ModelFacts, outputs: int) -> int | None:
    """The only output, or the probability of `yes` if a decoder judges by `yes` and `no`, as Qwen3-Reranker does.

    Classifiers with other labels have no single score.
    """
    if facts.pooling != "rank":
        return None
    if outputs == 1:
        return 0
    return facts.score_labels.index("yes") if set(facts.score_labels) == {"yes", "no"} else None


_YES_NO: Final = ("yes", "no")
_QWEN3_TEMPLATE: Final = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct"
    " provided."
    ' Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
    "<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
"""The prompt that Qwen3-Reranker was trained with, for files that lack it."""
_HIGHEST: Final = 100.0
"""Highest raw score: the logarithm of a probability that rounds to 0 or 1 has no end."""


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """raw: by document, the output of the head, or the logarithm of the odds of `yes`."""

    model: str
    raw: tuple[float, ...]
    prompt_tokens: int


async def rank(
    model: LeasedModel,
    query: str,
    documents: Sequence[str],
    *,
    max_document_tokens: int | None = None,
    truncate: bool = False,
) -> Ranked:
    """Score each document. Cancelling the call aborts the work. Options: see RankRequest.

    Raises InvalidRequest, ContextLengthExceeded (which names the documents), UnsupportedOperation (no reranker) and
    EngineFailure.
    """
    current_trace().operation = "rank"
    template, labels = _way_to_rank(model.name, model.facts)
    request = RankRequest(
        query=query,
        documents=tuple(documents),
        template=template,
        labels=labels,
        max_document_tokens=max_document_tokens,
        truncate=truncate,
    )
    answer = await model.wait(model.client.ask(request))
    return Ranked(
        model=model.name, raw=_raw_scores(model.name, model.facts, answer), prompt_tokens=answer.prompt_tokens
    )


def probability(raw: float) -> float:
    """A raw score from 0 to 1."""
    return 1.0 / (1.0 + math.exp(-raw)) if raw >= 0 else math.exp(raw) / (1.0 + math.exp(raw))


def _way_to_rank(name: str, facts: ModelFacts) -> tuple[str | None, tuple[str, ...]]:
    """The template of a pair, and the labels of a model without a head. Raises UnsupportedOperation."""
    template = facts.chat_templates.get("rerank")
    names = (name, facts.metadata.get("general.name", ""))
    if template is None and facts.architecture == "qwen3" and any("rerank" in each.lower() for each in names):
        template = _QWEN3_TEMPLATE
    if facts.pooling == "rank":
        return template, ()
    if facts.is_embedding_model:
        reason = "makes embeddings, and has no scoring head"
    elif template is None:
        reason = "has no scoring head, and no template for pairs in which it would write yes or no"
    else:
        return template, _YES_NO
    raise _unsupported(name, f"{reason}: reranking needs a reranker.")


def _raw_scores(name: str, facts: ModelFacts, answer: Embedded | OptionsWeighed) -> tuple[float, ...]:
    if isinstance(answer, OptionsWeighed):
        return tuple(_limited(one.log_masses[0] - one.log_masses[1]) for one in answer.answers)
    index = score_index(facts, answer.dimensions)
    if index is None:
        labels = ", ".join(facts.score_labels) or f"{answer.dimensions} outputs"
        raise _unsupported(name, f"sorts texts into classes ({labels}): it has no score for a document.")
    scores = [to_floats(vector)[index] for vector in answer.vectors]
    return tuple(scores) if answer.dimensions == 1 else tuple(map(_log_odds, scores))


def _log_odds(value: float) -> float:
    """Logarithm of the odds of a probability."""
    if value <= 0.0 or value >= 1.0:
        return math.copysign(_HIGHEST, value - 0.5)
    return _limited(math.log(value) - math.log1p(-value))


def _limited(raw: float) -> float:
    return min(_HIGHEST, max(-_HIGHEST, raw))

"""This module embeds texts or token sequences, and pools them:

it makes vectors, and scores of reward models and rerankers.

Lengths are tokens; vectors are little-endian float32. Embeddings have unit length, pooled vectors are not
normalised.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import msgspec

from jan_serve.core.models import ModelFacts
from jan_serve.core.trace import current_trace
from jan_serve.errors import InvalidRequest, UnsupportedOperation
from jan_serve.generation.adapters import chosen_adapters
from jan_serve.generation.leased_model import LeasedModel
from jan_serve.generation.ports import EngineClient
from jan_serve.ipc.messages import EmbedRequest

FLOAT_BYTES = 4


class Embeddings(msgspec.Struct, frozen=True, kw_only=True):
    """One vector per input, as the bytes of `dimensions` float32 each."""

    model: str
    vectors: tuple[bytes, ...]
    dimensions: int
    prompt_tokens: int


async def embed(
    model: LeasedModel, inputs: Sequence[str | tuple[int, ...]], dimensions: int | None = None
) -> Embeddings:
    """Embed all inputs, with a model that pools or can be loaded to pool.

    dimensions: keep the first ones, and scale them to unit length again. Cancelling the call aborts the work.
    Raises InvalidRequest (an input over the context, dimensions out of range), UnsupportedOperation and EngineFailure.
    """
    current_trace().operation = "embeddings"
    client = model.client
    if client.facts.pooling == "rank":
        raise UnsupportedOperation(
            f"The model `{client.name}` ranks texts; it does not embed them.", param="model"
        )
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
    return Embeddings(
        model=client.name,
        vectors=vectors,
        dimensions=min(dimensions or embedded.dimensions, embedded.dimensions),
        prompt_tokens=embedded.prompt_tokens,
    )


def refuse_unpooled(client: EngineClient) -> None:
    """Raises UnsupportedOperation for a model whose settings ask for a vector per token."""
    if client.facts.pooling == "none":
        raise UnsupportedOperation(
            f"The model `{client.name}` has the pooling `none`, which makes a vector for each token, and this route"
            " answers with one for each input. Set its pooling to mean, cls or last.",
            param="model",
        )


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


class Pooled(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for all inputs, in their order.

    vectors: little-endian float32, `dimensions` of them each, not normalised. score_at: index of the score; None if the
    model has no single score.
    """

    model: str
    vectors: tuple[bytes, ...]
    dimensions: int
    score_at: int | None
    prompt_tokens: int


async def pool(model: LeasedModel, inputs: Sequence[str | tuple[int, ...]]) -> Pooled:
    """Pool each input separately, with a reward, reranking or embedding model. Cancelling the call aborts the work.

    Special tokens in texts are parsed: reward models score chats rendered with their template.
    Raises InvalidRequest (an input that is empty or over the context), UnsupportedOperation (a generative model) and
    EngineFailure.
    """
    client = model.client
    if not client.facts.is_embedding_model:
        raise UnsupportedOperation(
            f"The model `{client.name}` generates text; pooling needs a reward, reranking or embedding model.",
            param="model",
        )
    refuse_unpooled(client)
    request = EmbedRequest(inputs=tuple(inputs), normalize=False, parse_special=True)
    embedded = await model.wait(client.ask(request))
    return Pooled(
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

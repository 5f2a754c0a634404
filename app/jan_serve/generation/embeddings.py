"""Texts and token sequences as vectors, also those that reward models and rerankers score with. Lengths are tokens."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import msgspec

from jan_serve.core.models import ModelFacts
from jan_serve.core.trace import current_trace
from jan_serve.errors import InvalidRequest, UnsupportedOperation
from jan_serve.generation.adapters import chosen_adapters
from jan_serve.generation.ports import EngineClient
from jan_serve.generation.service import LeasedModel
from jan_serve.ipc.messages import EmbedRequest

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
        raise unsupported(client.name, "ranks texts; it does not embed them.")
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
        raise unsupported(
            client.name,
            "has the pooling `none`, which makes a vector for each token, and this route answers with one for each"
            " input. Set its pooling to mean, cls or last.",
        )


def unsupported(model: str, reason: str) -> UnsupportedOperation:
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
        raise unsupported(
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

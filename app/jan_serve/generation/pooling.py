"""Scores of reward models and rerankers, and the pooled vectors of embedding models."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from jan_serve.core.models.model_facts import ModelFacts
from jan_serve.errors import UnsupportedOperation
from jan_serve.generation.embeddings import refuse_unpooled
from jan_serve.generation.leased_model import LeasedModel
from jan_serve.ipc.messages import EmbedRequest


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
    request = EmbedRequest(id=client.next_id(), inputs=tuple(inputs), normalize=False, parse_special=True)
    embedded = await model.wait(client.embed(request))
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

"""Scores of reward models and rerankers, and the pooled vectors of embedding models."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack

import msgspec

from jan_serve.errors import UnsupportedOperation
from jan_serve.generation.deadline import RunningRequests
from jan_serve.generation.ports import ModelLeases
from jan_serve.ipc.messages import EmbedRequest


class Pooled(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for all inputs, in their order.

    vectors: little-endian float32, `dimensions` of them each, not normalised. scores: the model is made to score: what
    each vector holds are its outputs, one in most models.
    """

    model: str
    vectors: tuple[bytes, ...]
    dimensions: int
    scores: bool
    prompt_tokens: int


class PoolingService:
    """Pools whole inputs with models that are made for it. Generative ones are refused: they have no pooled output."""

    def __init__(self, models: ModelLeases, running: RunningRequests) -> None:
        self._models = models
        self._running = running

    async def pool(self, model: str | None, inputs: Sequence[str | tuple[int, ...]]) -> Pooled:
        """Pool every input by itself; cancelling it aborts the work.

        Raises InvalidRequest (an input that is empty or over the context), UnsupportedOperation (a generative model),
        Unavailable and EngineFailure.
        """
        with self._running.enter() as deadline:
            async with AsyncExitStack() as stack:
                client = await deadline.wait(stack.enter_async_context(self._models.lease(model)))
                if not client.facts.is_embedding_model:
                    raise UnsupportedOperation(
                        f"The model `{client.name}` generates text; pooling needs a reward, reranking or embedding"
                        " model.",
                        param="model",
                    )
                request = EmbedRequest(id=client.next_id(), inputs=tuple(inputs), normalize=False)
                embedded = await deadline.wait(client.embed(request))
                return Pooled(
                    model=client.name,
                    vectors=embedded.vectors,
                    dimensions=embedded.dimensions,
                    scores=client.facts.pooling == "rank",
                    prompt_tokens=embedded.prompt_tokens,
                )

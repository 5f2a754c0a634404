"""The path of every request of every dialect: lease, render, compile the constraint, submit, read the events.

A dialect that needs a model's facts, tokens or rendered prompt before it generates opens the model first; then all of
it happens under one lease. Streaming is the caller's choice of when to read the events.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from jan_serve.core.events import GenerationEvent
from jan_serve.core.models.model_facts import ModelFacts
from jan_serve.core.request import GenerationRequest
from jan_serve.generation.deadline import RunningRequests
from jan_serve.generation.leased_model import LeasedModel
from jan_serve.generation.ports import ModelLeases, SequenceStates
from jan_serve.generation.prepare import RequestPreparer
from jan_serve.ipc.messages import Tokenized


class GenerationService:
    """Serves any loaded or loadable model. One instance serves all requests of a dialect."""

    def __init__(
        self,
        models: ModelLeases,
        preparer: RequestPreparer,
        running: RunningRequests,
        states: SequenceStates | None = None,
    ) -> None:
        """states: other servers, for requests that resume their states or keep states for them."""
        self._models = models
        self._preparer = preparer
        self._running = running
        self._states = states

    @asynccontextmanager
    async def open(self, model: str | None, keep_alive_s: float | None = None) -> AsyncGenerator[LeasedModel]:
        """Lease a model for one request; waits while it loads. None is the default model.

        keep_alive_s: see ModelLeases. Raises as ModelLeases.lease, and DeadlineExceeded.
        """
        with self._running.enter() as deadline:
            async with AsyncExitStack() as stack:
                lease = self._models.lease(model, keep_alive_s)
                client = await deadline.wait(stack.enter_async_context(lease))
                yield LeasedModel(client, deadline, self._preparer, self._states)

    def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationEvent]:
        """Yield the request's events from Started to Completed; waits while the model loads or the queue is long.

        Raises errors of the tree: those of InvalidRequest and Unavailable before Started, EngineFailure at any time.
        Closing the generator aborts the request and returns the model.
        """
        return LeasedModel.answer(self.open(request.model, request.keep_alive_s), request)

    async def facts(self, model: str | None) -> tuple[str, ModelFacts]:
        """The model's canonical name and its facts."""
        async with self.open(model) as opened:
            return opened.name, opened.facts

    async def tokenize(
        self,
        model: str | None,
        text: str,
        *,
        add_special: bool = True,
        parse_special: bool = True,
        with_pieces: bool = False,
    ) -> Tokenized:
        async with self.open(model) as opened:
            return await opened.tokenize(
                text, add_special=add_special, parse_special=parse_special, with_pieces=with_pieces
            )

    async def detokenize(
        self, model: str | None, tokens: Sequence[int], *, skip_special_tokens: bool = True
    ) -> str:
        async with self.open(model) as opened:
            return await opened.detokenize(tokens, skip_special_tokens=skip_special_tokens)

"""The start of every request of every dialect: a deadline, the model's name, a lease.

All that a request asks of the model happens under this lease. Streaming is the caller's choice of when to read the
events.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

from jan_serve.core.caller import cache_salt
from jan_serve.core.events import GenerationEvent
from jan_serve.core.models import ModelFacts
from jan_serve.core.request import GenerationRequest
from jan_serve.core.trace import current_trace
from jan_serve.errors import ModelNotFound
from jan_serve.generation.deadline import RunningRequests
from jan_serve.generation.leased_model import LeasedModel
from jan_serve.generation.ports import EngineClient, ModelLeases, SequenceStates
from jan_serve.generation.prepare import RequestPreparer

T = TypeVar("T")

Names = Callable[[str], Sequence[str | None]]
"""The names to look up in turn for the one in a request; None is the default model."""


def exact_name(name: str) -> Sequence[str | None]:
    """The name alone: an unknown one is an error."""
    return (name,)


def name_or_default(name: str) -> Sequence[str | None]:
    """The default model answers to unknown names, for clients that send the names of other servers' models."""
    return name, None


class GenerationService:
    """Serves any loaded or loadable model. One instance serves all requests of a dialect."""

    def __init__(
        self,
        models: ModelLeases,
        preparer: RequestPreparer,
        running: RunningRequests,
        states: SequenceStates | None = None,
        names: Names = exact_name,
    ) -> None:
        """states: other servers, for requests that resume their states or keep states for them."""
        self._models = models
        self._preparer = preparer
        self._running = running
        self._states = states
        self._names = names

    @asynccontextmanager
    async def open(self, model: str | None, ttl_s: float | None = None) -> AsyncGenerator[LeasedModel]:
        """Lease a model for one request; waits while it loads. None is the default model.

        ttl_s: see ModelLeases. Raises as ModelLeases.lease, and DeadlineExceeded. ModelNotFound has the name in
        the request, unless the default model was looked up too.
        """
        with self._running.enter() as deadline:
            async with AsyncExitStack() as stack:
                trace = current_trace()
                trace.owner, trace.model = cache_salt.get(), model
                client = await deadline.wait(self._first(stack, model, ttl_s))
                yield LeasedModel(client, deadline, self._preparer, self._states, cache_salt.get())

    async def _first(self, stack: AsyncExitStack, model: str | None, ttl_s: float | None) -> EngineClient:
        missing: ModelNotFound | None = None
        for name in (None,) if model is None else self._names(model):
            try:
                return await stack.enter_async_context(self._models.lease(name, ttl_s))
            except ModelNotFound as error:
                missing = error if missing is None or name is None else missing
        assert missing is not None
        raise missing

    async def with_model(
        self,
        model: str | None,
        work: Callable[[LeasedModel], Awaitable[T]],
        ttl_s: float | None = None,
    ) -> T:
        """The result of `work`, which has a lease of its own. Raises as `open`."""
        async with self.open(model, ttl_s) as opened:
            return await work(opened)

    def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationEvent]:
        """Yield the request's events from Started to Completed; waits while the model loads or the queue is long.

        Raises errors of the tree: those of InvalidRequest and Unavailable before Started, EngineFailure at any time.
        Closing the generator aborts the request and returns the model.
        """
        return LeasedModel.answer(self.open(request.model, request.ttl_s), request)

    async def facts(self, model: str | None) -> tuple[str, ModelFacts]:
        """The model's canonical name and its facts."""
        async with self.open(model) as opened:
            return opened.name, opened.facts

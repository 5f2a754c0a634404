"""The one path of a request: lease → compile the constraint → render → submit → events.

Streaming or not is the caller's choice of reading the events; there is no second path.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import AsyncExitStack

from jan_serve.core.events import (
    Completed,
    Finished,
    GenerationEvent,
    PromptTokens,
    Started,
    TextDelta,
    Usage,
)
from jan_serve.core.request import GenerationRequest
from jan_serve.errors import EngineFailure
from jan_serve.generation.best_of import BestOf
from jan_serve.generation.closing import closing
from jan_serve.generation.deadline import RunningRequests
from jan_serve.generation.kv_transfer import KvTransfer
from jan_serve.generation.ports import ModelLeases, SequenceStates
from jan_serve.generation.prepare import PreparedRequest, RequestPreparer
from jan_serve.ipc.messages import (
    Accepted,
    Chunk,
    EngineEvent,
    EngineRequest,
    PromptScored,
    RequestCompleted,
    SequenceFinished,
    StateKept,
)


class GenerationService:
    """Generates text from any loaded or loadable model. One instance serves all requests of a dialect."""

    def __init__(
        self,
        models: ModelLeases,
        preparer: RequestPreparer,
        running: RunningRequests,
        states: SequenceStates | None = None,
    ) -> None:
        """states: other servers, for requests that go on from them or are computed for them."""
        self._models = models
        self._preparer = preparer
        self._running = running
        self._states = states

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationEvent]:
        """Yield the request's events from Started to Completed; waits while the model loads or the queue is long.

        Raises errors of the tree: those of InvalidRequest and Unavailable before Started, EngineFailure at any time.
        Closing the generator aborts the request and returns the model.
        """
        with self._running.enter() as deadline:
            async with AsyncExitStack() as stack:
                lease = self._models.lease(request.model, request.keep_alive_s)
                client = await deadline.wait(stack.enter_async_context(lease))
                prepared = await deadline.wait(self._preparer.prepare(request, client))
                migration = KvTransfer(request, client, self._states)
                stack.callback(migration.close)
                submitted = await deadline.wait(migration.submitted(prepared.submitted))
                events = client.generate(submitted)
                answer = _Answer(client.name, prepared, _best_of(request, submitted), migration)
                async with closing(events):
                    completed = False
                    while not completed:
                        event = await deadline.wait(_next(events))
                        completed = isinstance(event, RequestCompleted)
                        for translated in answer.translate(event):
                            yield translated


def _best_of(request: GenerationRequest, submitted: EngineRequest) -> BestOf | None:
    if submitted.n == request.n:
        return None
    return BestOf(request.n, keep_tokens=request.logprobs is not None or request.return_tokens)


async def _next(events: AsyncIterator[EngineEvent]) -> EngineEvent:
    try:
        return await anext(events)
    except StopAsyncIteration:
        raise EngineFailure("The engine ended the answer without completing it.") from None


class _Answer:
    """From what the engine says to what callers get: the best choices, read by the model's format."""

    def __init__(
        self, model: str, prepared: PreparedRequest, best: BestOf | None, migration: KvTransfer
    ) -> None:
        self._model = model
        self._prepared = prepared
        self._best = best
        self._migration = migration
        self._reasoning_tokens = 0

    def translate(self, event: EngineEvent) -> Iterable[GenerationEvent]:
        """The events that this one brings."""
        match event:
            case Accepted():
                return [
                    Started(
                        model=self._model,
                        prompt_tokens=event.prompt_tokens,
                        infilled=self._prepared.infilled,
                        truncated=self._prepared.truncated,
                        warnings=self._prepared.warnings,
                    )
                ]
            case PromptScored():
                return [PromptTokens(event.tokens)]
            case StateKept():
                return [self._migration.kept(event)]
            case Chunk():
                return self._choice(TextDelta(event.index, event.text, event.tokens))
            case SequenceFinished():
                self._reasoning_tokens += event.reasoning_tokens
                return self._choice(_finished(event))
            case RequestCompleted():
                return [*self._winners(), self._completed(event)]
            case _:
                raise EngineFailure(f"The engine sent {type(event).__name__} in place of an answer.")

    def _choice(self, event: TextDelta | Finished) -> Iterable[GenerationEvent]:
        if self._best is None:
            return self._read(event)
        self._best.add(event)
        return ()

    def _winners(self) -> Iterable[GenerationEvent]:
        if self._best is not None:
            for event in self._best.winners():
                yield from self._read(event)

    def _read(self, event: TextDelta | Finished) -> Iterable[GenerationEvent]:
        parsers = self._prepared.parsers
        return [event] if parsers is None else parsers.read(event)

    def _completed(self, event: RequestCompleted) -> Completed:
        usage = Usage(
            prompt_tokens=event.prompt_tokens,
            completion_tokens=event.completion_tokens,
            cached_tokens=event.cached_tokens,
            reasoning_tokens=self._reasoning_tokens,
        )
        return Completed(usage=usage, timings=event.timings)


def _finished(event: SequenceFinished) -> Finished:
    return Finished(
        index=event.index,
        reason=event.reason,
        completion_tokens=event.completion_tokens,
        stop=event.stop,
        eos=event.eos,
        mean_logprob=event.mean_logprob,
        seed=event.seed,
        reasoning_tokens=event.reasoning_tokens,
        end_token=event.end_token,
    )

"""An answer of the engine: its events translated, the best choices kept, and the states of other servers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from jan_serve.core.events import (
    Completed,
    Finished,
    GenerationEvent,
    Started,
    StatePreserved,
    TextDelta,
    Usage,
)
from jan_serve.core.request import GenerationRequest
from jan_serve.errors import EngineFailure, UnsupportedOperation
from jan_serve.generation.ports import EngineClient, SequenceStates
from jan_serve.generation.prepare import PreparedRequest
from jan_serve.ipc.messages import (
    Accepted,
    Chunk,
    EngineEvent,
    EngineRequest,
    PromptScored,
    RequestCompleted,
    RequestProgressed,
    ResumeState,
    SequenceFinished,
    StateKept,
)

ChoiceEvent = TextDelta | Finished


class BestOf:
    """Collects all choices, then returns the n with the highest mean log-probability, best first, as choices 0 to n-1.

    keep_tokens: False drops tokens, which the request does not want.
    """

    def __init__(self, n: int, *, keep_tokens: bool) -> None:
        self._n = n
        self._keep_tokens = keep_tokens
        self._events: defaultdict[int, list[ChoiceEvent]] = defaultdict(list)
        self._scores: dict[int, float] = {}

    def add(self, event: ChoiceEvent) -> None:
        self._events[event.index].append(event)
        if isinstance(event, Finished):
            self._scores[event.index] = (
                event.mean_logprob if event.mean_logprob is not None else float("-inf")
            )

    def winners(self) -> Iterator[ChoiceEvent]:
        """The events of the best choices, once all are finished. Ties keep their order."""
        ranked = sorted(self._scores, key=lambda index: self._scores[index], reverse=True)
        for rank, index in enumerate(ranked[: self._n]):
            for event in self._events[index]:
                if isinstance(event, TextDelta) and not self._keep_tokens:
                    event = msgspec.structs.replace(event, tokens=())
                yield msgspec.structs.replace(event, index=rank)


class KvTransfer:
    """The sequence states of one request. `close` drops those that no one took over."""

    def __init__(
        self, request: GenerationRequest, client: EngineClient, states: SequenceStates | None
    ) -> None:
        """states: None if this service knows no other servers."""
        self._request = request
        self._client = client
        self._states = states
        self._to_drop: set[int] = set()

    async def submitted(self, prepared: EngineRequest) -> EngineRequest:
        """The request for the worker, once the state that it resumes is there.

        Raises UnsupportedOperation, InvalidRequest, PeerFailed, Overloaded.
        """
        if not self._request.keep_state and self._request.resume is None:
            return prepared
        states = self._other_servers()
        resume: ResumeState | None = None
        if self._request.resume is not None:
            state = self._client.next_id()
            self._to_drop.add(state)
            await states.fetch(self._request.resume, self._client, state)
            resume = ResumeState(state, self._request.resume.next_token)
        if self._request.keep_state:
            self._to_drop.add(prepared.id)
        return msgspec.structs.replace(prepared, keep_state=self._request.keep_state, resume=resume)

    def kept(self, event: StateKept) -> StatePreserved:
        """The worker keeps the state; from now on SequenceStates owns it."""
        handle = self._other_servers().keep(self._client, event.id)
        self._to_drop.discard(event.id)
        return StatePreserved(handle=handle, tokens=event.tokens, next_token=event.next_token)

    def close(self) -> None:
        for state in self._to_drop:
            self._client.drop_state(state)

    def _other_servers(self) -> SequenceStates:
        if self._states is None:
            raise UnsupportedOperation("This route does not work with other servers.")
        return self._states


class AnswerReader:
    """Translates the engine's events: keeps the best choices and reads them by the model's format."""

    def __init__(
        self,
        model: str,
        request: GenerationRequest,
        submitted: EngineRequest,
        prepared: PreparedRequest,
        transfer: KvTransfer,
    ) -> None:
        self._model = model
        self._prepared = prepared
        self._transfer = transfer
        self._reasoning_tokens = 0
        keep_tokens = request.logprobs is not None or request.return_tokens
        self._best = None if submitted.n == request.n else BestOf(request.n, keep_tokens=keep_tokens)

    def translate(self, event: EngineEvent) -> Iterable[GenerationEvent]:
        match event:
            case Accepted():
                yield Started(
                    model=self._model,
                    prompt_tokens=event.prompt_tokens,
                    infilled=self._prepared.infilled,
                    truncated=self._prepared.truncated,
                    warnings=self._prepared.warnings,
                )
            case PromptScored() | RequestProgressed():
                yield event
            case StateKept():
                yield self._transfer.kept(event)
            case Chunk() | SequenceFinished():
                if isinstance(event, SequenceFinished):
                    self._reasoning_tokens += event.reasoning_tokens
                if self._best is not None:
                    self._best.add(event)
                else:
                    yield from self._read(event)
            case RequestCompleted():
                for choice in self._best.winners() if self._best is not None else ():
                    yield from self._read(choice)
                usage = Usage(
                    prompt_tokens=event.prompt_tokens,
                    completion_tokens=event.completion_tokens,
                    cached_tokens=event.cached_tokens,
                    reasoning_tokens=self._reasoning_tokens,
                )
                yield Completed(usage=usage, timings=event.timings, work=event.work)
            case _:
                raise EngineFailure(f"The engine sent {type(event).__name__} in place of an answer.")

    def _read(self, event: ChoiceEvent) -> Iterable[GenerationEvent]:
        parsers = self._prepared.parsers
        return (event,) if parsers is None else parsers.read(event)

"""A model held for one request: its facts, tokens, prompts and answers, under one lease and one deadline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from time import perf_counter

import msgspec

from jan_serve.core.closing import closing
from jan_serve.core.events import (
    Completed,
    Finished,
    GenerationEvent,
    Started,
    StatePreserved,
    TextDelta,
    Usage,
)
from jan_serve.core.models import ModelFacts
from jan_serve.core.request import ChatPrompt, GenerationRequest, PartsPrompt
from jan_serve.core.trace import current_trace
from jan_serve.errors import EngineFailure, UnsupportedOperation
from jan_serve.generation.deadline import Deadline
from jan_serve.generation.ports import EngineClient, SequenceStates
from jan_serve.generation.prepare import PreparedRequest, RequestPreparer
from jan_serve.generation.transcripts import begun_log
from jan_serve.ipc.messages import (
    Accepted,
    Chunk,
    DetokenizeRequest,
    EngineEvent,
    EngineRequest,
    PromptScored,
    RequestCompleted,
    RequestProgressed,
    ResumeState,
    SequenceFinished,
    StateKept,
    Tokenized,
    TokenizeRequest,
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
                yield self._ranked(event, rank)

    def _ranked(self, event: ChoiceEvent, rank: int) -> ChoiceEvent:
        if isinstance(event, TextDelta) and not self._keep_tokens:
            return msgspec.structs.replace(event, index=rank, tokens=())
        return msgspec.structs.replace(event, index=rank)


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


class LeasedModel:
    """Made by GenerationService.open; valid inside its block only. Several answers may be generated side by side.

    client: the worker. wait: awaits its answers, up to the request's deadline. cache_salt: see EngineRequest.
    requested, of several methods: the model's name in the request, which may be a variant's.
    Every method raises DeadlineExceeded, the error that ended all requests, and EngineFailure.
    """

    def __init__(
        self,
        client: EngineClient,
        deadline: Deadline,
        preparer: RequestPreparer,
        states: SequenceStates | None,
        cache_salt: str,
    ) -> None:
        self.client = client
        self.cache_salt = cache_salt
        self.wait = deadline.wait
        self._preparer = preparer
        self._states = states

    @property
    def name(self) -> str:
        return self.client.name

    @property
    def facts(self) -> ModelFacts:
        return self.client.facts

    def shows_tools(self, requested: str | None = None) -> bool:
        """Whether the chat template writes the tools of a chat."""
        return self._preparer.shows_tools(self.client, requested)

    def template(self, requested: str | None) -> str | None:
        """The chat template for a request with this name; None if the model has none. May read a template file."""
        return self._preparer.template(self.name, self.facts.chat_templates, requested)

    async def chat_text(self, prompt: ChatPrompt, requested: str | None = None) -> str:
        """The chat as the model reads it. Raises TemplateError and InvalidRequest."""
        return await self.wait(self._preparer.chat_text(prompt, self.client, requested))

    async def count(self, prompt: ChatPrompt | PartsPrompt, requested: str | None = None) -> int:
        """The tokens of the prompt, images included. Raises as `chat_text`."""
        return await self.wait(self._preparer.count(prompt, self.client, requested))

    async def fetched(self, prompt: PartsPrompt) -> PartsPrompt:
        """The prompt with the files of its images: those that are elsewhere are fetched once. Raises InvalidImage."""
        return await self.wait(self._preparer.fetched(prompt, self.client))

    async def tokenize(
        self, text: str, *, add_special: bool = True, parse_special: bool = True, with_pieces: bool = False
    ) -> Tokenized:
        """add_special: BOS and EOS as the GGUF says. parse_special: the text of a special token becomes that token."""
        request = TokenizeRequest(
            text=text,
            add_special=add_special,
            parse_special=parse_special,
            with_pieces=with_pieces,
        )
        return await self.wait(self.client.ask(request))

    async def detokenize(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Bytes that are not UTF-8 become U+FFFD. Raises InvalidRequest for an unknown id."""
        request = DetokenizeRequest(tokens=tuple(tokens), skip_special_tokens=skip_special_tokens)
        return (await self.wait(self.client.ask(request))).text

    def generate(self, request: GenerationRequest) -> AsyncGenerator[GenerationEvent]:
        """See GenerationService.generate; answers with this model whatever `request.model` is."""
        return LeasedModel.answer(nullcontext(self), request)

    @staticmethod
    async def answer(
        opening: AbstractAsyncContextManager[LeasedModel], request: GenerationRequest
    ) -> AsyncGenerator[GenerationEvent]:
        """See GenerationService.generate. The model is held until the last event, or until the generator is closed."""
        async with opening as model, AsyncExitStack() as stack:
            wait, client = model.wait, model.client
            prepared = await wait(model._preparer.prepare(request, client, model.cache_salt))
            transfer = KvTransfer(request, client, model._states)
            stack.callback(transfer.close)
            submitted = await wait(transfer.submitted(prepared.submitted))
            answer = _Answer(model.name, prepared, _best_of(request, submitted), transfer)
            log = begun_log(submitted, model.facts)
            events = await stack.enter_async_context(closing(client.generate(submitted, log)))
            completed, sent_s, n_ctx = False, perf_counter(), model.facts.n_ctx
            while not completed:
                event = await wait(_next(events))
                if isinstance(event, Accepted) and model.facts.n_ctx > n_ctx:
                    current_trace().spent("growth", sent_s)
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
    """Translates the engine's events: keeps the best choices and reads them by the model's format."""

    def __init__(
        self, model: str, prepared: PreparedRequest, best: BestOf | None, transfer: KvTransfer
    ) -> None:
        self._model = model
        self._prepared = prepared
        self._best = best
        self._transfer = transfer
        self._reasoning_tokens = 0

    def translate(self, event: EngineEvent) -> Iterable[GenerationEvent]:
        match event:
            case Accepted():
                return [
                    Started(
                        model=self._model,
                        prompt_tokens=event.prompt_tokens,
                        infilled=self._prepared.prompt.infilled,
                        truncated=self._prepared.prompt.truncated,
                        warnings=self._prepared.warnings,
                    )
                ]
            case PromptScored() | RequestProgressed():
                return [event]
            case StateKept():
                return [self._transfer.kept(event)]
            case Chunk():
                return self._choice(event)
            case SequenceFinished():
                self._reasoning_tokens += event.reasoning_tokens
                return self._choice(event)
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
        return Completed(usage=usage, timings=event.timings, work=event.work)

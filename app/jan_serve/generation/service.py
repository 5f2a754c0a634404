"""The start of every request of every dialect: a deadline, the model's name, a lease; and the model held under it.

Streaming is the caller's choice of when to read the events.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from time import perf_counter
from typing import TypeVar

from jan_serve.core.caller import cache_salt
from jan_serve.core.closing import closing
from jan_serve.core.events import GenerationEvent
from jan_serve.core.models import ModelFacts
from jan_serve.core.request import ChatPrompt, GenerationRequest, PartsPrompt
from jan_serve.core.trace import current_trace
from jan_serve.errors import EngineFailure, ModelNotFound
from jan_serve.generation.answer import AnswerReader, KvTransfer
from jan_serve.generation.deadline import Deadline, RunningRequests
from jan_serve.generation.ports import EngineClient, ModelLeases, SequenceStates
from jan_serve.generation.prepare import RequestPreparer
from jan_serve.generation.transcripts import begun_log
from jan_serve.ipc.messages import (
    Accepted,
    DetokenizeRequest,
    EngineEvent,
    RequestCompleted,
    Tokenized,
    TokenizeRequest,
)

T = TypeVar("T")


Names = Callable[[str], Sequence[str | None]]
"""The names to look up in turn for the one in a request; None is the default model."""


def exact_name(name: str) -> Sequence[str | None]:
    """The name alone: an unknown one is an error."""
    return (name,)


def name_or_default(name: str) -> Sequence[str | None]:
    """The default model answers to unknown names, for clients that send the names of other servers' models."""
    return name, None


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
            text=text, add_special=add_special, parse_special=parse_special, with_pieces=with_pieces
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
            answer = AnswerReader(model.name, request, submitted, prepared, transfer)
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


async def _next(events: AsyncIterator[EngineEvent]) -> EngineEvent:
    try:
        return await anext(events)
    except StopAsyncIteration:
        raise EngineFailure("The engine ended the answer without completing it.") from None


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
        self, model: str | None, work: Callable[[LeasedModel], Awaitable[T]], ttl_s: float | None = None
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

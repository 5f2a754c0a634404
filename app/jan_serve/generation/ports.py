"""Interfaces of the supervisor, which `generation` never imports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

from jan_serve.core.kv_transfer import RemoteState
from jan_serve.core.models import ModelFacts
from jan_serve.core.request import RenderedChat, RenderRequest
from jan_serve.helpers.kinds import Compiled, CompileRequest, DecodeMedia
from jan_serve.ipc.answer_log import AnswerLog
from jan_serve.ipc.messages import EngineEvent, EngineRequest
from jan_serve.ipc.scoring import Query

A = TypeVar("A")


class EngineClient(Protocol):
    """A loaded model. Every method raises EngineFailure if its worker ends."""

    @property
    def name(self) -> str: ...

    @property
    def facts(self) -> ModelFacts:
        """What the worker reported when it was ready."""
        ...

    @property
    def adapter(self) -> str | None:
        """Name of the LoRA adapter that the request selected."""
        ...

    def next_id(self) -> int: ...

    def generate(self, request: EngineRequest, log: AnswerLog | None = None) -> AsyncIterator[EngineEvent]:
        """Yield the request's events up to RequestCompleted. Raises the error of Failed. Closing it aborts.

        log: repeats what it has first, and gets each new event before it is yielded.
        """
        ...

    async def ask(self, request: Query[A]) -> A:
        """The answer. Cancelling the call aborts the request."""
        ...

    def drop_state(self, state: int) -> None:
        """Never waits; ignores unknown states."""
        ...


class SequenceStates(Protocol):
    """Transfer of sequence states to and from other servers."""

    def keep(self, owner: EngineClient, state: int) -> int:
        """Take ownership of a state in a worker. Returns a handle."""
        ...

    async def fetch(self, wanted: RemoteState, taker: EngineClient, state: int) -> None:
        """Copy a state into a worker, as its `state`, which the caller drops. Raises InvalidRequest, PeerFailed."""
        ...


TemplateRenderer = Callable[[RenderRequest], Awaitable[RenderedChat]]
"""The prompt's text. Raises TemplateError, UnsupportedContent, and ProtocolError for values it cannot take."""

MediaDecoder = Callable[[DecodeMedia], Awaitable[bytes]]
"""Pixels (RGB8, rows from the top), samples (float32, mono) or text (UTF-8).

Raises InvalidImage, InvalidAudio, InvalidDocument; EngineCrashed, Unavailable.
"""

ImageFetcher = Callable[[str], Awaitable[bytes]]
"""The file at a URL. Raises InvalidImage."""

ConstraintTranslator = Callable[[CompileRequest], Awaitable[Compiled]]
"""The grammar or grammars. Cancelling the call ends the work.

Raises InvalidGrammar, InvalidSchema, UnsupportedSchema, UnsupportedPattern, GrammarTooComplex; EngineCrashed,
Unavailable.
"""


class ModelLeases(Protocol):
    def lease(
        self, name: str | None, ttl_s: float | None = None
    ) -> AbstractAsyncContextManager[EngineClient]:
        """Hold a model, loading it first if needed (which waits). None is the default model.

        ttl_s: how long it then stays loaded while idle; negative is for ever, None is as configured.
        Raises ModelNotFound, InvalidModel, ModelFailed, InsufficientMemory, Overloaded, Draining.
        """
        ...

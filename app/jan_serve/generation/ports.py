"""What `generation` needs from the supervisor, which is handed in and never imported."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from jan_serve.core.kv_transfer import RemoteState
from jan_serve.core.model_facts import ModelFacts
from jan_serve.ipc.compiling import Compiled
from jan_serve.ipc.messages import (
    DetokenizeRequest,
    Embedded,
    EmbedRequest,
    EngineEvent,
    EngineRequest,
    ReadState,
    StatePart,
    StateStored,
    StoreState,
    Tokenized,
    TokenizeRequest,
)
from jan_serve.ipc.rendering import RenderRequest


class EngineClient(Protocol):
    """A loaded model. Every method raises an EngineFailure when the worker ends under it."""

    @property
    def name(self) -> str:
        """The model's canonical name."""
        ...

    @property
    def facts(self) -> ModelFacts:
        """What the worker said when it was ready."""
        ...

    @property
    def adapter(self) -> str | None:
        """The LoRA adapter that the model was asked for with, by its name."""
        ...

    def next_id(self) -> int:
        """A request id that this worker has not seen."""
        ...

    def generate(self, request: EngineRequest) -> AsyncIterator[EngineEvent]:
        """Yield the request's events up to RequestCompleted. Raises what Failed carries. Closing it aborts."""
        ...

    async def embed(self, request: EmbedRequest) -> Embedded:
        """Embed; cancelling the call aborts it."""
        ...

    async def tokenize(self, request: TokenizeRequest) -> Tokenized:
        """Text to token ids."""
        ...

    async def detokenize(self, request: DetokenizeRequest) -> str:
        """Token ids to text."""
        ...

    async def read_state(self, request: ReadState) -> StatePart:
        """A part of the state of a sequence that the worker keeps."""
        ...

    async def store_state(self, request: StoreState) -> StateStored:
        """Give the worker a part of a state."""
        ...

    def drop_state(self, state: int) -> None:
        """Have the worker forget a state. Never waits; unknown ones are ignored."""
        ...


class SequenceStates(Protocol):
    """Other servers, as far as prompts are computed for them or by them."""

    def keep(self, owner: EngineClient, state: int) -> int:
        """Take over what a worker keeps. Returns a handle."""
        ...

    async def fetch(self, wanted: RemoteState, taker: EngineClient, state: int) -> None:
        """Bring a state to a worker, as its `state`, which the caller drops. Raises InvalidRequest, PeerFailed."""
        ...


class TemplateRenderer(Protocol):
    """Where chat templates are rendered."""

    async def render(self, request: RenderRequest) -> str:
        """The prompt's text. Raises TemplateError, UnsupportedContent, and ProtocolError for values it cannot take."""
        ...


class ConstraintTranslator(Protocol):
    """Where constraints and the calls of tools are compiled."""

    async def translate(self, request: bytes) -> Compiled:
        """The grammar or grammars of a CompileRequest, which is encoded. Cancelling the call ends the work.

        Raises InvalidGrammar, InvalidSchema, UnsupportedSchema, UnsupportedPattern, GrammarTooComplex; EngineCrashed,
        Unavailable.
        """
        ...


class ModelLeases(Protocol):
    """Where loaded models come from."""

    def lease(
        self, name: str | None, keep_alive_s: float | None = None
    ) -> AbstractAsyncContextManager[EngineClient]:
        """Hold a model, loading it first if needed (which waits). None is the default model.

        keep_alive_s: how long it stays loaded afterwards; negative is for ever, None is as configured.
        Raises ModelNotFound, InvalidModel, ModelFailed, InsufficientMemory, Overloaded, Draining.
        """
        ...

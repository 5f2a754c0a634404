"""An engine and a supervisor inside the test's process: scripted events, every request is recorded.

For tests that need a real worker process (crashes, pipes) there is `engines.fake_manager`.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import struct
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from jan_serve.core.events import Timings, TokenInfo
from jan_serve.core.messages import MediaPiece
from jan_serve.core.models import (
    ManagerSnapshot,
    ModelFacts,
    ModelSource,
    ModelState,
    ModelStatus,
    SpecialToken,
)
from jan_serve.errors import InvalidRequest, ModelNotFound, UnsupportedOperation
from jan_serve.ipc.answer_log import AnswerLog
from jan_serve.ipc.messages import (
    Accepted,
    Chunk,
    Counted,
    CountRequest,
    Detokenized,
    DetokenizeRequest,
    Embedded,
    EmbedRequest,
    EngineEvent,
    EngineRequest,
    PromptScored,
    ReadState,
    RequestCompleted,
    SequenceFinished,
    StatePart,
    StateStored,
    StoreState,
    Tokenized,
    TokenizeRequest,
)
from jan_serve.ipc.scoring import OptionsWeighed, OptionWeights, Query, RankRequest, WeighOptions
from tests.support.engine.prompt_pieces import with_shown_media

A = TypeVar("A")
Script = Callable[[EngineRequest], AsyncIterator[EngineEvent]]

N_VOCAB = 300
N_EMBD = 4


def fake_facts(**changes: Any) -> ModelFacts:
    """Facts of a small chat model whose token ids are bytes; 256 is BOS, 257 EOS."""
    values: dict[str, Any] = {
        "description": "fake",
        "architecture": "llama",
        "n_ctx": 512,
        "n_ctx_train": 512,
        "n_vocab": N_VOCAB,
        "n_embd": N_EMBD,
        "n_params": 1,
        "size_bytes": 1,
        "parallel": 4,
        "threads": 1,
        "n_gpu_layers": 0,
        "n_layer": 1,
        "device": "CPU",
        "devices": (),
        "pooling": "mean",
        "is_embedding_model": False,
        "is_recurrent": False,
        "special_tokens": {"bos": SpecialToken(256, "<s>"), "eos": SpecialToken(257, "</s>")},
        "eog_token_ids": (257,),
        "add_bos": True,
        "add_eos": False,
        "chat_templates": {},
        "metadata": {},
        "weights": "f" * 32,
    }
    return ModelFacts(**(values | changes))


def token_infos(
    text: str, *, logprobs: int | None = None, first_unscored: bool = False
) -> tuple[TokenInfo, ...]:
    """One token per byte, each of log-probability -0.5."""
    infos = [
        TokenInfo(byte, bytes([byte]), False, None if logprobs is None else -0.5) for byte in text.encode()
    ]
    if first_unscored and infos:
        infos[0] = TokenInfo(infos[0].id, infos[0].piece)
    return tuple(infos)


def saying(*pieces: str, **ending: Any) -> Script:
    """A script: every choice gets these pieces, and the same ending (fields of SequenceFinished)."""

    async def script(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        prompt = prompt_text(request)
        yield Accepted(request.id, len(prompt))
        if request.prompt_logprobs is not None:
            infos = token_infos(prompt, logprobs=request.prompt_logprobs, first_unscored=True)
            yield PromptScored(infos, id=request.id)
        for piece in pieces:
            for index in range(request.n):
                wants = request.logprobs is not None or request.return_tokens
                tokens = token_infos(piece, logprobs=request.logprobs) if wants else ()
                yield Chunk(index, piece, tokens, id=request.id)
        for event in endings(request, sum(map(len, pieces)), **ending):
            yield event

    return script


def failing(error: Exception, *pieces: str, accepted: bool = False) -> Script:
    """A script: these pieces, then the error. Without pieces the request is refused, or `accepted` before it fails."""

    async def script(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        if pieces or accepted:
            yield Accepted(request.id, len(prompt_text(request)))
        for piece in pieces:
            yield Chunk(0, piece, token_infos(piece), id=request.id)
        raise error
        yield endings(request, 0)[0]

    return script


async def _after(
    past: Sequence[EngineEvent], events: AsyncIterator[EngineEvent]
) -> AsyncGenerator[EngineEvent]:
    """What a worker writes that knows the past: neither its text nor its other events come again."""
    left = Counter[int]()
    for event in past:
        if isinstance(event, Chunk):
            left[event.index] += len(event.text)
    ended = {event.index for event in past if isinstance(event, SequenceFinished)}
    async for event in events:
        match event:
            case Accepted() if past:
                continue
            case PromptScored() if any(isinstance(each, PromptScored) for each in past):
                continue
            case Chunk():
                text = event.text[left[event.index] :]
                left[event.index] -= len(event.text) - len(text)
                if event.index in ended or (not text and event.text):
                    continue
                event = msgspec.structs.replace(event, text=text)
            case SequenceFinished() if event.index in ended:
                continue
            case _:
                pass
        yield event


def endings(request: EngineRequest, completion_tokens: int, **ending: Any) -> list[EngineEvent]:
    """The last events of a request."""
    values: dict[str, Any] = {"reason": "stop", "eos": True, "mean_logprob": -0.5} | ending
    finished: list[EngineEvent] = [
        SequenceFinished(id=request.id, index=index, completion_tokens=completion_tokens, **values)
        for index in range(request.n)
    ]
    completed = RequestCompleted(
        id=request.id,
        prompt_tokens=len(prompt_text(request)),
        completion_tokens=completion_tokens * request.n,
        cached_tokens=0,
        timings=Timings(queue_s=0.1, prefill_s=0.2, decode_s=0.3),
    )
    return [*finished, completed]


def prompt_text(request: EngineRequest | CountRequest) -> str:
    """The prompt as text; token ids become bytes, images and sound are in brackets."""
    return "".join(
        piece if isinstance(piece, str) else bytes(i for i in piece if i < 256).decode("utf-8", "replace")
        for piece in with_shown_media(request.prompt)
    )


def weights_of(*log_masses: float) -> OptionWeights:
    return OptionWeights(log_masses=log_masses, tokenisations=(1,) * len(log_masses), is_exact=True)


@dataclass
class FakeClient:
    """One loaded model. `script` answers generate; the lists record requests and those closed before their end."""

    name: str = "fake"
    facts: ModelFacts = field(default_factory=fake_facts)
    script: Script = field(default_factory=lambda: saying("Hel", "lo."))
    requests: list[EngineRequest] = field(default_factory=list[EngineRequest])
    closed_early: list[int] = field(default_factory=list[int])
    weighed: list[WeighOptions] = field(default_factory=list[WeighOptions])
    adapter: str | None = None
    states: dict[int, bytes] = field(default_factory=dict[int, bytes])
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def next_id(self) -> int:
        return next(self._ids)

    async def generate(
        self, request: EngineRequest, log: AnswerLog | None = None
    ) -> AsyncGenerator[EngineEvent]:
        self.requests.append(request)
        past = list(log or ())
        for event in past:
            yield event
            if isinstance(event, RequestCompleted):
                return
        if request.prompt_logprobs is not None and any(isinstance(p, MediaPiece) for p in request.prompt):
            raise UnsupportedOperation(
                "prompt_logprobs: a prompt with images or sound has no log-probabilities",
                param="prompt_logprobs",
            )
        ended = False
        try:
            async for event in _after(past, self.script(request)):
                ended = isinstance(event, RequestCompleted)
                if log is not None:
                    log.add(event)
                yield event
        finally:
            if not ended:
                self.closed_early.append(request.id)

    async def ask(self, request: Query[A]) -> A:
        """The answer of one of the methods below."""
        answers: dict[type[Any], Callable[[Any], Awaitable[Any]]] = {
            EmbedRequest: self.embed,
            RankRequest: self.rank,
            WeighOptions: self.weigh,
            CountRequest: self.count,
            TokenizeRequest: self.tokenize,
            DetokenizeRequest: self.detokenize,
            ReadState: self.read_state,
            StoreState: self.store_state,
        }
        return await answers[type(request)](request)

    async def embed(self, request: EmbedRequest) -> Embedded:
        """The vector (3, 4, 0, 0) / 5 for every input."""
        vector = struct.pack(f"<{N_EMBD}f", 0.6, 0.8, 0.0, 0.0)
        return Embedded(
            id=request.id,
            vectors=(vector,) * len(request.inputs),
            dimensions=N_EMBD,
            prompt_tokens=sum(map(len, request.inputs)),
        )

    async def rank(self, request: RankRequest) -> Embedded | OptionsWeighed:
        """The length of a document, or of its mass for the first label against the second one of 0."""
        lengths = [float(len(document)) for document in request.documents]
        tokens = sum(map(len, request.documents)) + len(request.query)
        if request.labels:
            answers = tuple(weights_of(length, 0.0) for length in lengths)
            return OptionsWeighed(id=request.id, answers=answers, prompt_tokens=tokens, cached_tokens=0)
        scores = tuple(struct.pack("<f", length) for length in lengths)
        return Embedded(id=request.id, vectors=scores, dimensions=1, prompt_tokens=tokens)

    async def weigh(self, request: WeighOptions) -> OptionsWeighed:
        """The probabilities are 1/2, 1/4, 1/8, ..."""
        self.weighed.append(request)
        answers = tuple(
            weights_of(*(-math.log(2) * (place + 1) for place in range(len(question.options))))
            for question in request.questions
        )
        return OptionsWeighed(id=request.id, answers=answers, prompt_tokens=7, cached_tokens=3)

    async def count(self, request: CountRequest) -> Counted:
        """The bytes of `prompt_text`, and BOS if requested."""
        return Counted(request.id, len(prompt_text(request).encode()) + int(request.add_special))

    async def tokenize(self, request: TokenizeRequest) -> Tokenized:
        """Bytes, after BOS if requested."""
        ids = list(request.text.encode())
        tokens = [256, *ids] if request.add_special else ids
        pieces = [b"<s>" if token == 256 else bytes([token]) for token in tokens]
        return Tokenized(request.id, tokens, pieces if request.with_pieces else [])

    async def detokenize(self, request: DetokenizeRequest) -> Detokenized:
        """Bytes as text; raises InvalidRequest for ids outside the vocabulary."""
        for token in request.tokens:
            if not 0 <= token < N_VOCAB:
                raise InvalidRequest(f"token {token} is outside the vocabulary", param="tokens")
        text = bytes(token for token in request.tokens if token < 256).decode("utf-8", "replace")
        return Detokenized(request.id, text)

    async def read_state(self, request: ReadState) -> StatePart:
        data = self.states[request.state]
        part = data[request.offset : request.offset + request.length]
        return StatePart(id=request.id, data=part, total=len(data))

    async def store_state(self, request: StoreState) -> StateStored:
        data = self.states.get(request.state, b"") + request.data
        self.states[request.state] = data
        return StateStored(request.id, len(data))

    def drop_state(self, state: int) -> None:
        self.states.pop(state, None)


class FakeModels:
    """Leases of fake clients; the first one is the default. `held` counts the open leases."""

    def __init__(self, *clients: FakeClient) -> None:
        self.clients = clients or (FakeClient(),)
        self.state: ModelState = "ready"
        self.lost_devices: tuple[str, ...] = ()
        self.held = 0
        self.leased: list[str | None] = []
        self.keep_alives: list[float | None] = []
        self.unloaded: list[str] = []
        self.refusal: Exception | None = None

    @contextlib.asynccontextmanager
    async def lease(self, name: str | None, ttl_s: float | None = None) -> AsyncGenerator[FakeClient]:
        """Raises `refusal` if that is set, ModelNotFound for other names."""
        self.leased.append(name)
        self.keep_alives.append(ttl_s)
        if self.refusal is not None:
            raise self.refusal
        client = next((client for client in self.clients if name in (None, client.name)), None)
        if client is None:
            raise ModelNotFound(name or "")
        self.held += 1
        try:
            yield client
        finally:
            self.held -= 1

    async def models(self) -> Sequence[ModelSource]:
        """All of them."""
        return [ModelSource(name=client.name, path=f"{client.name}.gguf") for client in self.clients]

    async def unload(self, name: str) -> bool:
        """Records the name. Raises ModelNotFound."""
        if all(name != client.name for client in self.clients):
            raise ModelNotFound(name)
        self.unloaded.append(name)
        return True

    def snapshot(self) -> ManagerSnapshot:
        """All of them, loaded once, in the state `state`."""
        models = tuple(
            ModelStatus(
                name=client.name,
                path=f"{client.name}.gguf",
                state=self.state,
                loads_total=1,
                lost_devices=self.lost_devices,
            )
            for client in self.clients
        )
        return ManagerSnapshot(draining=False, models=models)

"""A blocking test driver of a real worker process: requests in, folded results out. Not the product's client."""

from __future__ import annotations

import contextlib
import itertools
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import jan_serve
from jan_serve.core.engine_stats import EngineStats
from jan_serve.core.events import TokenInfo
from jan_serve.core.messages import PromptPiece
from jan_serve.core.models import ModelFacts
from jan_serve.core.placement import PlacementOptions
from jan_serve.core.request import SamplingParams, StopConditions
from jan_serve.errors import JanServeError, error_from_payload
from jan_serve.ipc.attachments import media_frames
from jan_serve.ipc.channel import EVENTS, REQUESTS
from jan_serve.ipc.child_pipe import LENGTH, body_length
from jan_serve.ipc.messages import (
    Accepted,
    Chunk,
    ContextGrown,
    Counted,
    CountRequest,
    Detokenized,
    DetokenizeRequest,
    Embedded,
    EmbedRequest,
    EngineEvent,
    EngineRequest,
    EngineSettings,
    Failed,
    LoadFailed,
    LoadModel,
    LoadProgress,
    PingRequest,
    Pong,
    PromptScored,
    RequestCompleted,
    RequestProgressed,
    SequenceFinished,
    StateKept,
    Step,
    Tokenized,
    TokenizeRequest,
    WorkerEvent,
    WorkerRequest,
)
from jan_serve.ipc.scoring import OptionQuestion, OptionsWeighed, RankRequest, WeighOptions

LIMIT_S = 60.0
"""Seconds of silence: a worker that other work leaves hardly any CPU is slow, not stalled. Below pytest's own limit."""
_ids = itertools.count(1)
_SAMPLING = frozenset(SamplingParams.__struct_fields__)
_STOPPING = frozenset(StopConditions.__struct_fields__)

Prompt = str | Iterable[int] | tuple[PromptPiece, ...]


def generate(prompt: Prompt, **fields: Any) -> EngineRequest:
    """A request with a fresh id. Accepts fields of SamplingParams, StopConditions and EngineRequest.

    Greedy and 16 tokens long, unless the fields say otherwise.
    """
    pieces: Any = (prompt,) if isinstance(prompt, str) else tuple(prompt)
    if all(isinstance(piece, int) for piece in pieces):
        pieces = (pieces,)
    fields = {"temperature": 0.0, "max_tokens": 16, "cache_salt": "", **fields}
    sampling = {name: fields.pop(name) for name in [*fields] if name in _SAMPLING}
    stopping = {name: fields.pop(name) for name in [*fields] if name in _STOPPING}
    return EngineRequest(
        id=next(_ids),
        prompt=pieces,
        sampling=SamplingParams(**sampling),
        stopping=StopConditions(**stopping),
        **fields,
    )


def next_id() -> int:
    """An id no other request of this test process has."""
    return next(_ids)


@dataclass(slots=True)
class Choice:
    """One folded sequence."""

    text: str = ""
    tokens: list[TokenInfo] = field(default_factory=list[TokenInfo])
    deltas: list[str] = field(default_factory=list[str])
    finished: SequenceFinished | None = None

    @property
    def ids(self) -> list[int]:
        """Ids of the sent tokens."""
        return [info.id for info in self.tokens]

    @property
    def end(self) -> SequenceFinished:
        """The finished event; it must have arrived."""
        assert self.finished is not None
        return self.finished


@dataclass(slots=True)
class Result:
    """All events of one request, in order in `events`, and folded."""

    events: list[EngineEvent] = field(default_factory=list[EngineEvent])
    accepted: Accepted | None = None
    scored: PromptScored | None = None
    kept: StateKept | None = None
    choices: dict[int, Choice] = field(default_factory=dict[int, Choice])
    completed: RequestCompleted | None = None
    error: JanServeError | None = None

    def add(self, event: EngineEvent) -> None:
        """Fold one more event; fails if the order breaks the protocol."""
        assert not self.is_over, f"an event after the end: {event}"
        self.events.append(event)
        match event:
            case Accepted():
                assert len(self.events) == 1
                self.accepted = event
            case PromptScored():
                assert not self.choices and self.scored is None
                self.scored = event
            case Chunk():
                choice = self.choices.setdefault(event.index, Choice())
                assert choice.finished is None
                choice.text += event.text
                choice.deltas.append(event.text)
                choice.tokens += event.tokens
            case StateKept():
                self.kept = event
            case RequestProgressed():
                pass
            case SequenceFinished():
                choice = self.choices.setdefault(event.index, Choice())
                assert choice.finished is None
                choice.finished = event
            case RequestCompleted():
                assert all(choice.finished is not None for choice in self.choices.values())
                self.completed = event
            case Failed():
                self.error = error_from_payload(event.code, event.payload)

    @property
    def is_over(self) -> bool:
        """Whether its last event has arrived."""
        return self.completed is not None or self.error is not None

    @property
    def texts(self) -> list[str]:
        """Text of each choice, by index. Raises the error that the request ended with."""
        if self.error is not None:
            raise self.error
        return [self.choices[i].text for i in sorted(self.choices)]

    @property
    def choice(self) -> Choice:
        """The only choice. Raises the error that the request ended with."""
        assert len(self.texts) == 1
        return self.choices[0]

    @property
    def text(self) -> str:
        """Text of the only choice."""
        return self.choice.text

    @property
    def usage(self) -> RequestCompleted:
        """Its counts; it must have completed."""
        if self.error is not None:
            raise self.error
        assert self.completed is not None
        return self.completed


class WorkerEnded(Exception):
    """The worker closed its pipe; carries its stderr."""


class Worker:
    """A worker process with one loaded model. Every read has a deadline: a stall is an error, not a hang."""

    def __init__(self, stderr: IO[bytes]) -> None:
        """Start the process; it has no model yet."""
        self._stderr = stderr
        self.process = subprocess.Popen(
            worker_command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=worker_environment(),
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self._stdin, self._stdout = self.process.stdin, self.process.stdout
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._stdout, selectors.EVENT_READ)
        self._queue: deque[WorkerEvent] = deque()
        self.results: dict[int, Result] = {}
        self._facts: ModelFacts | None = None

    def load(self, path: Path, settings: EngineSettings) -> None:
        """Wait until the model is loaded. Raises the JanServeError of LoadFailed."""
        self.send(LoadModel(path=str(path), settings=settings))
        while True:
            event = self.receive()
            match event:
                case ModelFacts():
                    self._facts = event
                    return
                case LoadFailed():
                    raise error_from_payload(event.code, event.payload)
                case LoadProgress():
                    pass
                case _:
                    raise AssertionError(f"before the facts: {event}")

    @property
    def facts(self) -> ModelFacts:
        """What the load ended with."""
        assert self._facts is not None
        return self._facts

    # Frames

    def send(self, *requests: WorkerRequest) -> None:
        """Write all at once, so that the worker reads them together."""
        for request in requests:
            if isinstance(request, EngineRequest):
                self.results[request.id] = Result()
        frames = [
            frame
            for request in requests
            for frame in (media_frames(request) if isinstance(request, EngineRequest) else [request])
        ]
        self._stdin.write(b"".join(map(REQUESTS.encode, frames)))
        self._stdin.flush()

    def receive(self, limit_s: float = LIMIT_S) -> WorkerEvent:
        """The next frame. Raises WorkerEnded, or AssertionError after `limit_s` seconds without one."""
        if self._queue:
            return self._queue.popleft()
        return self._read_frame(limit_s)

    def _read_frame(self, limit_s: float) -> WorkerEvent:
        deadline = time.monotonic() + limit_s
        length = body_length(self._read(LENGTH.size, deadline), EVENTS.limit)
        return EVENTS.decode(self._read(length, deadline))

    def _read(self, length: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < length:
            if not self._selector.select(max(0.0, deadline - time.monotonic())):
                raise AssertionError(f"the worker sent nothing in time. {self.stderr()}")
            part = os.read(self._stdout.fileno(), length - len(data))
            if not part:
                raise WorkerEnded(f"status {self.process.wait(LIMIT_S)}. {self.stderr()}")
            data += part
        return bytes(data)

    def stderr(self) -> str:
        """The worker's stderr so far."""
        # Read by position: the worker writes at the offset of the same open file.
        fd = self._stderr.fileno()
        return os.pread(fd, os.fstat(fd).st_size, 0).decode("utf-8", "replace")

    # Whole requests

    def advance(self) -> list[EngineEvent]:
        """Read one frame of generation events and fold them into `results`; returns them."""
        event = self.receive()
        events = list(event.events) if isinstance(event, Step) else [event]
        known: list[EngineEvent] = []
        for one in events:
            if isinstance(one, ContextGrown):
                continue
            assert isinstance(one, EngineEvent), f"not an event of a generation: {one}"
            known.append(one)
            self.results[one.id].add(one)
        return known

    def until(self, *requests: EngineRequest) -> None:
        """Read until all of these are over."""
        while not all(self.results[request.id].is_over for request in requests):
            self.advance()

    def run(self, *requests: EngineRequest) -> list[Result]:
        self.send(*requests)
        self.until(*requests)
        return [self.results[request.id] for request in requests]

    def run_one(self, prompt: Prompt, **fields: Any) -> Result:
        """`generate` and `run`."""
        return self.run(generate(prompt, **fields))[0]

    def ask(
        self,
        request: EmbedRequest
        | RankRequest
        | WeighOptions
        | CountRequest
        | TokenizeRequest
        | DetokenizeRequest,
    ) -> Embedded | OptionsWeighed | Counted | Tokenized | Detokenized:
        """The direct answer to a request; raises the error of Failed. No generation may be running."""
        self.send(request)
        event = self.receive()
        assert isinstance(event, Embedded | OptionsWeighed | Counted | Tokenized | Detokenized | Failed), (
            event
        )
        assert event.id == request.id
        if isinstance(event, Failed):
            raise error_from_payload(event.code, event.payload)
        return event

    def count(self, *prompt: PromptPiece, **fields: Any) -> int:
        answer = self.ask(CountRequest(id=next_id(), prompt=prompt, **fields))
        assert isinstance(answer, Counted)
        return answer.tokens

    def tokenize(self, text: str, **fields: Any) -> Tokenized:
        """Its parts, put together."""
        answer = self.ask(TokenizeRequest(id=next_id(), text=text, **fields))
        assert isinstance(answer, Tokenized)
        is_last = answer.is_last
        while not is_last:
            part = self.receive()
            assert isinstance(part, Tokenized) and part.id == answer.id
            answer.tokens.extend(part.tokens)
            answer.pieces.extend(part.pieces)
            is_last = part.is_last
        return answer

    def detokenize(self, tokens: Iterable[int], **fields: Any) -> str:
        answer = self.ask(DetokenizeRequest(id=next_id(), tokens=tuple(tokens), **fields))
        assert isinstance(answer, Detokenized)
        return answer.text

    def embed(self, *inputs: str | tuple[int, ...], **fields: Any) -> Embedded:
        answer = self.ask(EmbedRequest(id=next_id(), inputs=inputs, **fields))
        assert isinstance(answer, Embedded)
        return answer

    def rank(self, query: str, *documents: str, **fields: Any) -> Embedded | OptionsWeighed:
        answer = self.ask(RankRequest(id=next_id(), query=query, documents=documents, **fields))
        assert isinstance(answer, Embedded | OptionsWeighed)
        return answer

    def weigh(
        self, *questions: OptionQuestion, shared: tuple[str, ...] = (), **fields: Any
    ) -> OptionsWeighed:
        fields = {"cache_salt": "", **fields}
        answer = self.ask(WeighOptions(id=next_id(), shared=shared, questions=questions, **fields))
        assert isinstance(answer, OptionsWeighed)
        return answer

    def ping(self) -> Pong:
        """The next Pong. Generation events before it are kept for `receive`."""
        nonce = next_id()
        self.send(PingRequest(nonce))
        while True:
            event = self._read_frame(LIMIT_S)
            if isinstance(event, Pong):
                assert event.nonce == nonce
                return event
            self._queue.append(event)

    def stats(self) -> EngineStats:
        """Counters and gauges."""
        return self.ping().stats

    def close(self) -> None:
        """Close the pipe and wait for the end of the process; kills it after the limit."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self._selector.close()
            self._stdout.close()


def worker_command() -> list[str]:
    """The supervisor's worker command."""
    return [sys.executable, "-m", "jan_serve", "worker"]


def worker_environment() -> dict[str, str]:
    """Our environment, with the tested package first on the path; crashes print no native backtrace."""
    package_root = str(Path(jan_serve.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": package_root, "GGML_NO_BACKTRACE": "1"}


@contextlib.contextmanager
def running_worker(path: Path, **settings: Any) -> Generator[Worker]:
    """A worker with these EngineSettings; ends with the block. Raises the JanServeError of LoadFailed.

    JAN_SERVE_TEST_LAYERS=all puts models that the test does not place on the accelerator (scripts/check-accelerator).
    """
    if os.environ.get("JAN_SERVE_TEST_LAYERS") == "all":
        settings.setdefault("placement", PlacementOptions(n_gpu_layers=-1))
    with started_worker() as worker:
        worker.load(path, EngineSettings(**settings))
        yield worker


@contextlib.contextmanager
def started_worker() -> Generator[Worker]:
    """A worker without a model; ends with the block."""
    with tempfile.TemporaryFile() as stderr:
        worker = Worker(stderr)
        try:
            yield worker
        finally:
            worker.close()

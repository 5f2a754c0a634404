"""A real worker process without llama.cpp, driven over its stdin and stdout (`engines.FAKE_ENGINE` starts it).

It speaks the whole protocol of `jan_serve.ipc.messages`, steps its sequences in batches as the real engine does, and
does what the prompt or the model's file name says. Prompt commands: `fake_script`.

Model file names containing these load specially:
    slow-load       wait until somebody opens the FIFO at PATH.gate for writing
    hang-on-load    never finish        fail-load     LoadFailed(invalid_model)     no-memory  LoadFailed(…)
    crash-on-load-SIGNAL, also in a projector's name               exit-on-load  write to stderr, exit 3
    ends-as-told    take the first word of the file PATH.ends: load, no-memory, or die of a signal
    raise-on-load   end as an exception that nobody catches does
    embed           an embedding model
    saved-NMB       says that it keeps N MB of prompts in RAM, or what it may at most
"""

from __future__ import annotations

import os
import queue
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from jan_serve.core.engine_stats import EngineStats
from jan_serve.core.events import FinishReason, Timings
from jan_serve.core.models import ModelFacts
from jan_serve.errors import ContextLengthExceeded, InsufficientMemory, InvalidModel, JanServeError
from jan_serve.ipc.channel import BlockingChannel, take_over_stdio
from jan_serve.ipc.child_pipe import end_with_parent, write_no_core_dump
from jan_serve.ipc.messages import (
    AbortRequest,
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
    Failed,
    LoadFailed,
    LoadModel,
    LoadProgress,
    MediaData,
    PingRequest,
    Pong,
    PromptScored,
    RequestCompleted,
    SequenceFinished,
    ShutdownRequest,
    Step,
    Tokenized,
    TokenizeRequest,
    WorkerRequest,
)
from tests.support.engine.fake_script import Phase, Refusal, Script, Wait, compile_script, die
from tests.support.engine.fake_vocabulary import (
    BOS,
    N_EMBD,
    N_VOCAB,
    facts_of,
    infos,
    piece_of,
    to_text,
    to_tokens,
    vector_of,
)
from tests.support.engine.prompt_pieces import with_shown_media


@dataclass
class Running:
    """One request in the engine."""

    request: EngineRequest
    prompt_tokens: int
    script: Script
    waiting_for: Wait | None = None
    held: str = ""
    tokens: int = 0
    scored: bool = False
    since: float = field(default_factory=time.monotonic)


class FakeEngine:
    """The engine thread and the reader thread of this process."""

    def __init__(
        self, channel: BlockingChannel, raw_fd: int, end: Callable[[int], NoReturn] = os._exit
    ) -> None:
        """raw_fd: the writing end of the channel, for invalid frames. end: ends the process with a status."""
        self.channel = channel
        self.raw_fd = raw_fd
        self.end = end
        self.commands: queue.SimpleQueue[WorkerRequest | None] = queue.SimpleQueue()
        self.phase: tuple[Phase, float, int | None] = ("loading", time.monotonic(), None)
        self.waiting: list[Running] = []
        self.running: list[Running] = []
        self.facts: ModelFacts | None = None
        self.steps = 0
        self.generated = 0
        self.prompt_tokens = 0
        self.saved = 0

    # The reader thread: answers pings whatever the engine thread does.

    def read(self) -> None:
        """Read until the front closes the pipe; then end the process at once."""
        while (request := self.channel.receive()) is not None and not isinstance(request, ShutdownRequest):
            if isinstance(request, PingRequest):
                phase, since, request_id = self.phase
                self.channel.send(
                    Pong(
                        nonce=request.nonce,
                        phase=phase,
                        phase_s=time.monotonic() - since,
                        phase_id=request_id,
                        stats=self.stats(),
                    )
                )
            else:
                self.commands.put(request)
        self.end(0)

    def stats(self) -> EngineStats:
        return EngineStats(
            steps_total=self.steps,
            prompt_tokens_total=self.prompt_tokens,
            computed_tokens_total=self.prompt_tokens,
            generated_tokens_total=self.generated,
            running=len(self.running),
            waiting=len(self.waiting),
            cells_total=self.facts.n_ctx if self.facts else 0,
            rss_bytes=_rss_bytes(),
            cache_ram_bytes=self.saved,
        )

    # The engine thread.

    def run(self) -> None:
        """Load, then step for ever."""
        load = self.commands.get()
        assert isinstance(load, LoadModel)
        self.load(load)
        while True:
            self.enter("idle")
            self.take_commands()
            self.step()

    def enter(self, phase: Phase, request_id: int | None = None) -> None:
        """Set the reported phase of the engine thread."""
        self.phase = (phase, time.monotonic(), request_id)

    def load(self, load: LoadModel) -> None:
        """Load, or fail, as the file name says."""
        name = os.path.basename(load.path)
        self.channel.send(LoadProgress(0.0))
        if crash := re.search(r"crash-on-load-([A-Z]+)", f"{name} {load.settings.projector}"):
            print("fake: GGML_ASSERT(tensor != NULL) failed", file=sys.stderr, flush=True)
            die(crash.group(1))
        if "ends-as-told" in name:
            told = Path(load.path + ".ends")
            word, _, later = told.read_text().partition(" ")
            told.write_text(later)
            if word == "no-memory":
                self.refuse_load(InsufficientMemory("taken by others"))
            if word and word != "load":
                die(word)
        if "exit-on-load" in name:
            print("fake: cannot open the library", file=sys.stderr, flush=True)
            self.end(3)
        if "raise-on-load" in name:
            print("MemoryError: fake", file=sys.stderr, flush=True)
            self.end(1)
        if "hang-on-load" in name:
            threading.Event().wait()
        if "slow-load" in name:
            with open(load.path + ".gate", "rb"):
                pass
        for word, error in (
            ("fail-load", InvalidModel("not a GGUF file")),
            ("no-memory", InsufficientMemory("full")),
        ):
            if word in name:
                self.refuse_load(error)
        if saved := re.search(r"saved-(\d+)MB", name):
            self.saved = int(saved.group(1)) * 1_000_000
            if load.settings.cache_ram_most is not None:
                self.saved = min(self.saved, load.settings.cache_ram_most)
        self.channel.send(LoadProgress(1.0))
        self.facts = facts_of(name, load.settings)
        self.channel.send(self.facts)

    def refuse_load(self, error: JanServeError) -> NoReturn:
        """Say why it cannot load, and end."""
        self.channel.send(LoadFailed(code=error.code, payload=error.payload()))
        self.end(0)

    def take_commands(self) -> None:
        """All commands received; waits if there is nothing to do."""
        while True:
            idle = not self.running and not self.waiting
            try:
                # Gates are polled while nothing else runs; a command ends the wait at once.
                blocked = all(entry.waiting_for is not None for entry in self.running)
                command = self.commands.get(block=idle or blocked, timeout=None if idle else 0.005)
            except queue.Empty:
                return
            match command:
                case EngineRequest():
                    self.accept(command)
                case MediaData():
                    pass  # it sees nothing
                case AbortRequest():
                    self.forget(command.id)
                    self.waiting = [entry for entry in self.waiting if entry.request.id != command.id]
                case EmbedRequest():
                    self.embed(command)
                case CountRequest():
                    self.channel.send(Counted(command.id, _count(command)))
                case TokenizeRequest():
                    tokens = [*([BOS] if command.add_special else []), *to_tokens(command.text)]
                    pieces = [piece_of(token) for token in tokens] if command.with_pieces else []
                    self.channel.send(Tokenized(command.id, tokens, pieces))
                case DetokenizeRequest():
                    self.detokenize(command)
                case None:
                    sys.exit()
                case _:
                    raise AssertionError(f"unexpected {command}")

    def accept(self, request: EngineRequest) -> None:
        """Check a request, then queue it."""
        assert self.facts is not None
        parts = with_shown_media(request.prompt)
        text = "".join(part if isinstance(part, str) else to_text(part) for part in parts)
        count = _count(request)
        if count >= self.facts.n_ctx:
            self.refuse(
                request.id, ContextLengthExceeded(count, self.facts.n_ctx, param=request.prompt_param)
            )
            return
        try:
            script = compile_script(text, self, request.id)
        except Refusal as refusal:
            self.refuse(request.id, refusal.error)
            return
        self.prompt_tokens += count
        entry = Running(request, count, script)
        if request.written is not None:
            go_on(entry, request.written.choices[0].characters)
        self.waiting.append(entry)
        self.channel.send(Step((Accepted(request.id, count),)))

    def forget(self, request_id: int) -> None:
        """Host: drop the request without an event."""
        self.running = [entry for entry in self.running if entry.request.id != request_id]

    def write_raw(self, data: bytes) -> None:
        """Host: put bytes on the pipe that no codec would write."""
        os.write(self.raw_fd, data)

    def refuse(self, request_id: int, error: JanServeError) -> None:
        """A Failed in a Step, as the real engine sends it."""
        self.channel.send(Step((Failed(id=request_id, code=error.code, payload=error.payload()),)))

    def step(self) -> None:
        """Send one piece of each running sequence in one frame."""
        assert self.facts is not None
        while self.waiting and len(self.running) < self.facts.parallel:
            self.running.append(self.waiting.pop(0))
        self.enter("decode")
        events: list[EngineEvent] = []
        for entry in list(self.running):
            if entry.waiting_for is not None and not entry.waiting_for.ready():
                continue
            entry.waiting_for = None
            try:
                self.advance(entry, events)
            except Refusal as refusal:
                error = refusal.error
                events.append(Failed(id=entry.request.id, code=error.code, payload=error.payload()))
                self.running.remove(entry)
        if events:
            self.steps += 1
            self.channel.send(Step(tuple(events)))

    def advance(self, entry: Running, events: list[EngineEvent]) -> None:
        """Take one piece of one request."""
        request = entry.request
        if not entry.scored and request.prompt_logprobs is not None:
            parts = with_shown_media(request.prompt)
            text = "".join(part if isinstance(part, str) else to_text(part) for part in parts)
            events.append(PromptScored(infos(text, request.prompt_logprobs, first=True), id=request.id))
        entry.scored = True
        piece = next(entry.script, None)
        if isinstance(piece, Wait):
            entry.waiting_for = piece
            return
        reason, stop, text = limit_text(entry, piece)
        if text:
            want = request.logprobs is not None or request.return_tokens
            tokens = infos(text, request.logprobs) if want else ()
            self.generated += len(to_tokens(text)) * request.n
            ids = tuple(to_tokens(text))
            events.extend(Chunk(index, text, tokens, id=request.id, ids=ids) for index in range(request.n))
        if reason is not None:
            self.finish(entry, reason, stop, events)

    def finish(
        self, entry: Running, reason: FinishReason, stop: str | None, events: list[EngineEvent]
    ) -> None:
        """End all sequences of a request together."""
        request = entry.request
        self.running.remove(entry)
        seed = request.sampling.seed if request.sampling.temperature > 0 else None
        events.extend(
            SequenceFinished(
                id=request.id,
                index=index,
                reason=reason,
                completion_tokens=entry.tokens,
                stop=stop,
                eos=reason == "stop" and stop is None,
                mean_logprob=-0.5 if request.logprobs is not None else None,
                seed=None if seed is None else seed + index,
            )
            for index in range(request.n)
        )
        events.append(
            RequestCompleted(
                id=request.id,
                prompt_tokens=entry.prompt_tokens,
                completion_tokens=entry.tokens * request.n,
                cached_tokens=0,
                timings=Timings(decode_s=time.monotonic() - entry.since),
            )
        )

    def embed(self, request: EmbedRequest) -> None:
        """Unit vectors that depend on the input only."""
        assert self.facts is not None
        self.enter("embed", request.id)
        tokens = [to_tokens(part) if isinstance(part, str) else part for part in request.inputs]
        for ids in tokens:
            if len(ids) > self.facts.n_ctx:
                error = ContextLengthExceeded(len(ids), self.facts.n_ctx, param="input")
                self.channel.send(Failed(id=request.id, code=error.code, payload=error.payload()))
                return
        vectors = tuple(vector_of(ids) for ids in tokens)
        total = sum(map(len, tokens))
        self.channel.send(Embedded(id=request.id, vectors=vectors, dimensions=N_EMBD, prompt_tokens=total))

    def detokenize(self, request: DetokenizeRequest) -> None:
        """Rejects ids outside the vocabulary."""
        bad = next((token for token in request.tokens if not 0 <= token < N_VOCAB), None)
        if bad is None:
            self.channel.send(Detokenized(request.id, to_text(request.tokens)))
            return
        message = f"token {bad} is outside the vocabulary (0 to {N_VOCAB - 1})"
        payload = {"message": message, "param": "tokens"}
        self.channel.send(Failed(id=request.id, code="invalid_request", payload=payload))


def _count(request: EngineRequest | CountRequest) -> int:
    parts = with_shown_media(request.prompt)
    count = sum(len(to_tokens(part)) if isinstance(part, str) else len(part) for part in parts)
    return count + (1 if request.add_special else 0)


def go_on(entry: Running, characters: int) -> None:
    """Take the pieces that another engine sent."""
    while characters > 0 and (piece := next(entry.script, None)) is not None:
        if isinstance(piece, str):
            characters -= len(piece)
            entry.tokens += len(to_tokens(piece))


def limit_text(entry: Running, piece: str | None) -> tuple[FinishReason | None, str | None, str]:
    """Apply stop strings and max_tokens: why the sequence ends, by which stop, and the text to send now.

    Text that may become a stop string is held back until it is decided.
    """
    stopping = entry.request.stopping
    reason: FinishReason | None = None
    if piece is None:
        reason, piece = "stop", ""
    room = None if stopping.max_tokens is None else stopping.max_tokens - entry.tokens
    if room is not None and len(to_tokens(piece)) >= room:
        reason, piece = reason or "length", piece.encode()[:room].decode("utf-8", "ignore")
    entry.tokens += len(to_tokens(piece))
    pending = entry.held + piece
    entry.held = ""
    hits = sorted((pending.find(stop), stop) for stop in stopping.stop if stop in pending)
    if hits:
        at, stop = hits[0]
        return "stop", stop, pending[: at + len(stop) if stopping.include_stop else at]
    if reason is None:
        open_at = (
            at for at in range(len(pending)) if any(stop.startswith(pending[at:]) for stop in stopping.stop)
        )
        cut = next(open_at, len(pending))
        pending, entry.held = pending[:cut], pending[cut:]
    return reason, None, pending


def _rss_bytes() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """The engine thread is a daemon: the end of the pipe ends the process whatever it does."""
    raw_fd = os.dup(1)
    channel = take_over_stdio()
    end_with_parent()
    write_no_core_dump()
    engine = FakeEngine(channel, raw_fd)

    def run() -> None:
        try:
            engine.run()
        except BaseException:
            traceback.print_exc()
            os._exit(70)

    threading.Thread(target=run, daemon=True, name="engine").start()
    engine.read()

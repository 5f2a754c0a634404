"""A real worker process without llama.cpp: `python tests/support/fake_engine.py`, spoken to over its stdin and stdout.

It speaks the whole protocol of `jan_serve.ipc.messages`, steps its sequences in batches as the real engine does, and
does what the prompt or the model's file name says. Its vocabulary is the 256 bytes plus BOS (256) and EOS (257).

Prompt commands (anywhere in the prompt, up to the end of the line or `<|`; the first one counts):
    !say TEXT             answer TEXT, one character a step; TEXT may be a JSON string
    !echo                 answer the prompt
    !pid                  answer the process id
    !stream N [MSms]      N chunks `0 `, `1 ` …, MS milliseconds apart
    !gate PATH [N]        N chunks (default 1), then wait until somebody opens the FIFO at PATH for writing, then `done`
    !die [SIGNAL]         accept, then die of SIGNAL (default SEGV) before the first chunk
    !die-after N [SIGNAL] die of SIGNAL after N chunks
    !exit CODE [TEXT]     accept, write TEXT to stderr, exit with CODE
    !fail CODE [TEXT]     refuse with the error of this code
    !fail-after N CODE    end with the error of this code after N chunks
    !stall [PHASE]        accept, then stay in PHASE (sample, decode) for ever; `silent` stops the whole process
    !forget               accept, and never answer
    !bad-utf8 | !huge | !garbage   break the protocol
    !stderr TEXT          write TEXT (a JSON string) to stderr, then answer `ok`
Without a command it answers REPLY.

Model file names containing these load specially:
    slow-load       wait until somebody opens the FIFO at PATH.gate for writing
    hang-on-load    never finish        fail-load     LoadFailed(invalid_model)     no-memory  LoadFailed(…)
    crash-on-load-SIGNAL                exit-on-load  write to stderr, exit 3
    embed           an embedding model
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import queue
import re
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "app"))

from jan_serve.core.events import FinishReason, Timings, TokenInfo, TokenLogprob
from jan_serve.errors import ContextLengthExceeded, InsufficientMemory, InvalidModel, JanServeError
from jan_serve.errors import error_from_payload as make_error
from jan_serve.ipc.channel import BlockingChannel, take_over_stdio
from jan_serve.ipc.messages import (
    AbortRequest,
    Accepted,
    Chunk,
    Detokenized,
    DetokenizeRequest,
    DeviceInfo,
    Embedded,
    EmbedRequest,
    EngineEvent,
    EngineSettings,
    EngineStats,
    Failed,
    GenerateRequest,
    LoadFailed,
    LoadModel,
    LoadProgress,
    ModelFacts,
    PingRequest,
    Pong,
    PromptScored,
    Ready,
    RequestCompleted,
    SequenceFinished,
    ShutdownRequest,
    SpecialToken,
    Step,
    Tokenized,
    TokenizeRequest,
    WorkerRequest,
)
from jan_serve.ipc.parent_death import end_with_parent, write_no_core_dump

REPLY = "This is the fake engine."
BOS, EOS = 256, 257
N_VOCAB = 258
N_EMBD = 8
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_COMMAND = re.compile(
    r"!(say|echo|pid|stream|gate|die-after|die|exit|fail-after|fail|stall|forget|bad-utf8|huge|garbage|stderr)"
    r"\b[ ]?((?:(?!<\|)[^\n])*)"
)


def to_tokens(text: str) -> tuple[int, ...]:
    """One token a byte."""
    return tuple(text.encode())


def to_text(tokens: tuple[int, ...]) -> str:
    """Inverse of `to_tokens`; special tokens are skipped."""
    return bytes(token for token in tokens if token < 256).decode("utf-8", "replace")


class Wait:
    """What a script yields when it cannot go on yet."""

    def __init__(self, ready: Callable[[], bool]) -> None:
        self.ready = ready


class Refusal(Exception):
    """A script that refuses its request: an error of the tree, before or after Accepted."""

    def __init__(self, error: JanServeError) -> None:
        super().__init__(error.message)
        self.error = error


Piece = str | Wait
Script = Iterator[Piece]


@dataclass
class Running:
    """One request in the engine."""

    request: GenerateRequest
    prompt_tokens: int
    script: Script
    waiting_for: Wait | None = None
    held: str = ""
    tokens: int = 0
    scored: bool = False
    since: float = field(default_factory=time.monotonic)


class FakeEngine:
    """The engine thread and the reader thread of this process."""

    def __init__(self, channel: BlockingChannel) -> None:
        self.channel = channel
        self.commands: queue.SimpleQueue[WorkerRequest | None] = queue.SimpleQueue()
        self.phase: tuple[str, float, int | None] = ("loading", time.monotonic(), None)
        self.waiting: list[Running] = []
        self.running: list[Running] = []
        self.facts: ModelFacts | None = None
        self.steps = 0
        self.generated = 0
        self.prompt_tokens = 0

    # The reader thread: answers pings whatever the engine thread does.

    def read(self) -> None:
        """Until the front closes the pipe; then the process ends at once."""
        while (request := self.channel.receive()) is not None and not isinstance(request, ShutdownRequest):
            if isinstance(request, PingRequest):
                phase, since, request_id = self.phase
                self.channel.send(
                    Pong(
                        nonce=request.nonce,
                        phase=phase,  # pyright: ignore[reportArgumentType]
                        phase_s=time.monotonic() - since,
                        phase_id=request_id,
                        stats=self.stats(),
                    )
                )
            else:
                self.commands.put(request)
        os._exit(0)

    def stats(self) -> EngineStats:
        """Counters of this process."""
        return EngineStats(
            steps_total=self.steps,
            prompt_tokens_total=self.prompt_tokens,
            computed_tokens_total=self.prompt_tokens,
            generated_tokens_total=self.generated,
            running=len(self.running),
            waiting=len(self.waiting),
            cells_total=self.facts.n_ctx if self.facts else 0,
            rss_bytes=_rss_bytes(),
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

    def enter(self, phase: str, request_id: int | None = None) -> None:
        """What the engine thread is doing from now on."""
        self.phase = (phase, time.monotonic(), request_id)

    def load(self, load: LoadModel) -> None:
        """As the file name says."""
        name = os.path.basename(load.path)
        self.channel.send(LoadProgress(0.0))
        if crash := re.search(r"crash-on-load-([A-Z]+)", name):
            print("fake: GGML_ASSERT(tensor != NULL) failed", file=sys.stderr, flush=True)
            die(crash.group(1))
        if "exit-on-load" in name:
            print("fake: cannot open the library", file=sys.stderr, flush=True)
            os._exit(3)
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
                self.channel.send(LoadFailed(code=error.code, payload=error.payload()))
                os._exit(0)
        self.channel.send(LoadProgress(1.0))
        self.facts = facts_of(name, load.settings)
        self.channel.send(Ready(self.facts))

    def take_commands(self) -> None:
        """Everything that has come; waits for it while there is nothing to do."""
        while True:
            idle = not self.running and not self.waiting
            try:
                # Gates are looked at while nothing else runs; a command ends the wait at once.
                blocked = all(entry.waiting_for is not None for entry in self.running)
                command = self.commands.get(block=idle or blocked, timeout=None if idle else 0.005)
            except queue.Empty:
                return
            match command:
                case GenerateRequest():
                    self.accept(command)
                case AbortRequest():
                    self.running = [entry for entry in self.running if entry.request.id != command.id]
                    self.waiting = [entry for entry in self.waiting if entry.request.id != command.id]
                case EmbedRequest():
                    self.embed(command)
                case TokenizeRequest():
                    tokens = ((BOS,) if command.add_special else ()) + to_tokens(command.text)
                    pieces = tuple(piece_of(token) for token in tokens) if command.with_pieces else ()
                    self.channel.send(Tokenized(command.id, tokens, pieces))
                case DetokenizeRequest():
                    self.detokenize(command)
                case _:
                    raise AssertionError(f"unexpected {command}")

    def accept(self, request: GenerateRequest) -> None:
        """Check a request, then queue it."""
        assert self.facts is not None
        text = "".join(part if isinstance(part, str) else to_text(part) for part in request.prompt)
        count = sum(len(to_tokens(part)) if isinstance(part, str) else len(part) for part in request.prompt)
        count += 1 if request.add_special else 0
        if count >= self.facts.n_ctx:
            self.refuse(
                request.id, ContextLengthExceeded(count, self.facts.n_ctx, param=request.prompt_param)
            )
            return
        try:
            script = compile_script(text, self, request)
        except Refusal as refusal:
            self.refuse(request.id, refusal.error)
            return
        self.prompt_tokens += count
        self.waiting.append(Running(request, count, script))
        self.channel.send(Step((Accepted(request.id, count),)))

    def refuse(self, request_id: int, error: JanServeError) -> None:
        """A Failed in a Step, as the real engine sends it."""
        self.channel.send(Step((Failed(id=request_id, code=error.code, payload=error.payload()),)))

    def step(self) -> None:
        """One piece of each running sequence, in one frame."""
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
            text = "".join(part if isinstance(part, str) else to_text(part) for part in request.prompt)
            events.append(PromptScored(request.id, infos(text, request.prompt_logprobs, first=True)))
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
            events.extend(Chunk(request.id, index, text, tokens) for index in range(request.n))
        if reason is not None:
            self.finish(entry, reason, stop, events)

    def finish(
        self, entry: Running, reason: FinishReason, stop: str | None, events: list[EngineEvent]
    ) -> None:
        """All sequences of a request end together here."""
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
        """Refuses ids outside the vocabulary."""
        bad = next((token for token in request.tokens if not 0 <= token < N_VOCAB), None)
        if bad is None:
            self.channel.send(Detokenized(request.id, to_text(request.tokens)))
            return
        message = f"token {bad} is outside the vocabulary (0 to {N_VOCAB - 1})"
        payload = {"message": message, "param": "tokens"}
        self.channel.send(Failed(id=request.id, code="invalid_request", payload=payload))


def compile_script(prompt: str, engine: FakeEngine, request: GenerateRequest) -> Script:
    """The pieces of the answer that the prompt asks for."""
    found = _COMMAND.search(prompt)
    if found is None:
        return characters(REPLY)
    command, argument = found.group(1), found.group(2).strip()
    words = argument.split()
    match command:
        case "say":
            return characters(json.loads(argument) if argument.startswith('"') else argument)
        case "echo":
            return characters(prompt)
        case "pid":
            return characters(str(os.getpid()))
        case "stderr":
            print(json.loads(argument), file=sys.stderr, flush=True)
            return characters("ok")
        case "stream":
            return counting(int(words[0]), float(words[1].removesuffix("ms")) / 1000 if words[1:] else 0.0)
        case "gate":
            return gated(words[0], int(words[1]) if words[1:] else 1)
        case "fail":
            raise Refusal(make_error(words[0], example_payload(words[0], " ".join(words[1:]))))
        case "fail-after":
            return failing(int(words[0]), make_error(words[1], example_payload(words[1], "")))
        case _:
            return violent(command, words, engine, request)


def violent(command: str, words: list[str], engine: FakeEngine, request: GenerateRequest) -> Script:
    """Scripts that harm the process or the protocol."""

    def script() -> Script:
        match command:
            case "die":
                die(words[0] if words else "SEGV")
            case "die-after":
                yield from itertools.islice(counting(10**9, 0.0), int(words[0]))
                die(words[1] if words[1:] else "SEGV")
            case "exit":
                print(" ".join(words[1:]), file=sys.stderr, flush=True)
                os._exit(int(words[0]))
            case "stall":
                phase = words[0] if words else "sample"
                if phase == "silent":
                    os.kill(os.getpid(), signal.SIGSTOP)
                engine.enter(phase, request.id if phase == "sample" else None)
                threading.Event().wait()
            case "forget":
                engine.running = [entry for entry in engine.running if entry.request is not request]
                yield Wait(lambda: False)
            case _:
                body = {"bad-utf8": b"\x83\xa4type\xabdetokenized\xa2id\x01\xa4text\xa2\xff\xfe"}.get(
                    command, b"junk"
                )
                length = 2**32 - 1 if command == "huge" else len(body)
                raw_write(engine.channel, struct.pack("<I", length) + body)
        yield ""

    return script()


def characters(text: str) -> Script:
    """One character at a time."""
    yield from text


def counting(count: int, pause_s: float) -> Script:
    """`0 `, `1 ` … with a pause before each but the first."""
    for number in range(count):
        if number and pause_s:
            due = time.monotonic() + pause_s
            yield Wait(lambda due=due: time.monotonic() >= due)
        yield f"{number} "


def gated(path: str, count: int) -> Script:
    """Pieces, then a gate, then the end. The gate is opened by whoever opens the FIFO for writing."""
    opened = threading.Event()

    def wait() -> None:
        with open(path, "rb"):
            opened.set()

    yield from counting(count, 0.0)
    threading.Thread(target=wait, daemon=True).start()
    yield Wait(opened.is_set)
    yield "done"


def failing(count: int, error: JanServeError) -> Script:
    """Pieces, then an error."""
    yield from counting(count, 0.0)
    raise Refusal(error)


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


def infos(text: str, top: int | None, *, first: bool = False) -> tuple[TokenInfo, ...]:
    """Tokens with made-up but steady log-probabilities; the first prompt token has none."""
    result: list[TokenInfo] = []
    for number, token in enumerate(to_tokens(text)):
        if top is None or (first and number == 0):
            result.append(TokenInfo(token, piece_of(token)))
            continue
        ranks = range(top)
        best = tuple(TokenLogprob((token + i) % 256, piece_of((token + i) % 256), -0.5 - i) for i in ranks)
        result.append(TokenInfo(token, piece_of(token), False, -0.5, best))
    return tuple(result)


def piece_of(token: int) -> bytes:
    """The bytes of a token."""
    return bytes([token]) if token < 256 else (b"<s>" if token == BOS else b"</s>")


def vector_of(tokens: tuple[int, ...]) -> bytes:
    """A unit vector from a hash."""
    digest = hashlib.sha256(repr(tokens).encode()).digest()[:N_EMBD]
    values = [byte - 127.5 for byte in digest]
    norm = math.sqrt(sum(value * value for value in values))
    return struct.pack(f"<{N_EMBD}f", *(value / norm for value in values))


def facts_of(name: str, settings: EngineSettings) -> ModelFacts:
    """What a small llama would report."""
    cpu = DeviceInfo(name="CPU", description="fake", kind="cpu", free_bytes=2**33, total_bytes=2**34)
    return ModelFacts(
        description="fake 1B Q8_0",
        architecture="fake",
        n_ctx=settings.n_ctx or 4096,
        n_ctx_train=4096,
        n_vocab=N_VOCAB,
        n_embd=N_EMBD,
        n_params=1_000_000,
        size_bytes=1_000_000,
        parallel=settings.parallel or 4,
        threads=settings.threads or 1,
        n_gpu_layers=0,
        n_layer=1,
        device="CPU",
        devices=(cpu,),
        pooling="mean" if "embed" in name else "none",
        is_embedding_model="embed" in name,
        is_recurrent=False,
        special_tokens={"bos": SpecialToken(BOS, "<s>"), "eos": SpecialToken(EOS, "</s>")},
        eog_token_ids=(EOS,),
        add_bos=True,
        add_eos=False,
        chat_templates={} if "no-template" in name else {"default": CHAT_TEMPLATE},
        metadata={"general.architecture": "fake", "general.name": name},
    )


def example_payload(code: str, text: str) -> dict[str, object]:
    """Enough of a payload to rebuild any error of the tree."""
    common: dict[str, object] = {"message": text or f"fake {code}", "param": None}
    extra: dict[str, dict[str, object]] = {
        "context_length_exceeded": {"n_prompt": 5000, "n_ctx": 4096, "param": "prompt", "message": None},
        "invalid_grammar": {"reason": text or "fake reason", "line": 3, "param": "grammar"},
        "invalid_schema": {"pointer": "/a", "reason": text or "fake reason"},
        "unsupported_schema": {"pointer": "/a", "keyword": "not", "reason": text or "fake reason"},
        "unsupported_pattern": {"position": 3, "reason": text or "fake reason"},
        "model_not_found": {"name": "missing", "near": []},
    }
    return {**common, **extra.get(code, {})}


def raw_write(channel: BlockingChannel, data: bytes) -> None:
    """Put bytes on the pipe that no codec would write."""
    os.write(channel._write_fd, data)  # pyright: ignore[reportPrivateUsage]


def die(name: str) -> None:
    """End by a signal, as a crash of native code does."""
    os.kill(os.getpid(), signal.Signals[f"SIG{name}"])
    threading.Event().wait()


def _rss_bytes() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """The engine thread is a daemon: the end of the pipe ends the process whatever it does."""
    channel = take_over_stdio()
    end_with_parent()
    write_no_core_dump()
    engine = FakeEngine(channel)

    def run() -> None:
        try:
            engine.run()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
            os._exit(70)

    threading.Thread(target=run, daemon=True, name="engine").start()
    engine.read()


if __name__ == "__main__":
    main()

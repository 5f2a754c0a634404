"""The worker process: serves one model over the pipe. Started by the front as `jan-serve worker`.

Five threads. The reader takes frames off the pipe: it answers pings and interrupts the decode of an aborted request at
once (the bindings release the GIL). The intake tokenises and validates. The transfer thread moves states of sequences
in and out. The engine thread, the main one, owns the llama.cpp contexts: no other thread touches them. The writer sends
the events of its steps. The process ends when the pipe does.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

import msgspec
import psutil

from jan_serve.core.engine_stats import EngineStats
from jan_serve.engine.cache.state_identity import rope_factors, state_key
from jan_serve.engine.cache.state_transfer import StateTransfer
from jan_serve.engine.constraint.grammar_factory import STACK_BYTES
from jan_serve.engine.constraint.token_tables import EarlyTables, KeptTokens
from jan_serve.engine.embedding.input_pooling import EmbedJob
from jan_serve.engine.engine import Engine
from jan_serve.engine.intake import ContextGrowth, Intake
from jan_serve.engine.intake_thread import IntakeThread
from jan_serve.engine.llama import backend
from jan_serve.engine.llama.rpc import connect_peers
from jan_serve.engine.loading.contexts import check_growth
from jan_serve.engine.loading.loader import LoadedModel, load
from jan_serve.engine.media_encoder import MediaEncoder, embeddings_bytes
from jan_serve.engine.queues import Command, CommandQueue, EmbedPacing, GrowContext, JobQueue, Wake
from jan_serve.engine.scoring.options import BATCH_TOKENS, OptionJob
from jan_serve.engine.stats import PhaseClock
from jan_serve.errors import JanServeError, Overloaded, ProtocolError, SettingsError
from jan_serve.ipc.attachments import Attachments, attachments_bytes
from jan_serve.ipc.channel import BlockingChannel, take_over_stdio
from jan_serve.ipc.child_pipe import end_with_parent, write_no_core_dump
from jan_serve.ipc.messages import (
    PROTOCOL_VERSION,
    AbortRequest,
    ContextGrown,
    DropState,
    EngineEvent,
    EngineRequest,
    Failed,
    LoadFailed,
    LoadModel,
    LoadProgress,
    MediaData,
    PingRequest,
    Pong,
    ReadState,
    RequestCompleted,
    ShutdownRequest,
    Step,
    StoreState,
)
from jan_serve.placement.device_plan import kv_bytes_per_token

# At shutdown: the wait for the current step, then for the disk. Together below WorkerLimits.stop_s.
_SAVE_BEGINS_S = 1.0
_SAVE_S = 5.0


class Worker:
    """One model and its threads. Answers pings from the start, and requests once the model is loaded."""

    def __init__(self, channel: BlockingChannel, request: LoadModel) -> None:
        self._channel = channel
        self._request = request
        self._phase = PhaseClock()
        self._commands = CommandQueue()
        self._attachments = Attachments(attachments_bytes())
        # A front that does not read slows the engine down, as a full pipe does. A write wakes the front, which often
        # takes the writer's core until it is done: a thread of its own overlaps that with the next decode.
        self._outbox: queue.Queue[Step] = queue.Queue(64)
        self._intake = IntakeThread(channel.send, self._commands, self._attachments)
        self._jobs = JobQueue()
        self._embed_pacing = EmbedPacing(request.settings.stream_share)
        self._process = psutil.Process()
        self._transfer = StateTransfer(request, channel.send)
        self._engine: Engine | None = None
        self._interrupts: tuple[Callable[[int], None], ...] = ()  # stop the decode of a request
        self._saving, self._saved = threading.Event(), threading.Event()

    def run(self) -> int:
        """Load, then serve until the pipe ends. Returns, with the exit status, only if the model cannot be loaded.
        Otherwise the process ends with `os._exit`, which frees everything."""
        threading.Thread(target=_ending_process(self._read), name="reader", daemon=True).start()
        early = _early_tables(self._request)
        loaded = _load(self._channel, self._request)
        if loaded is None:
            return 1
        intake = self._set_up(loaded, early)
        default_stack = threading.stack_size(STACK_BYTES)
        prepare = _ending_process(lambda: self._intake.run(loaded, intake, self._engine))
        threading.Thread(target=prepare, name="intake", daemon=True).start()
        threading.stack_size(default_stack)
        threading.Thread(target=_ending_process(self._transfer.run), name="transfer", daemon=True).start()
        threading.Thread(target=_ending_process(self._write), name="writer", daemon=True).start()
        self._phase.enter("idle")
        self._channel.send(loaded.facts)
        _ending_process(self._serve)()
        return 0

    def _set_up(self, loaded: LoadedModel, early: EarlyTables | None) -> Intake:
        self._embedder, self._scorer, self._decode = loaded.embedder, loaded.scorer, loaded.decode
        self._settings, self._facts = loaded.settings, loaded.facts
        facts, growth = loaded.facts, None
        if loaded.settings.grow_context:
            growth = ContextGrowth(facts.longest_ctx, self._ask_to_grow)
        if loaded.context is not None:
            self._transfer.rope_factors = rope_factors(facts.metadata, loaded.context.n_ctx)
            self._engine = Engine(
                loaded.context,
                loaded.settings,
                phase=self._phase,
                states=loaded.states,
                draft_model=loaded.draft_model,
                shelf=self._transfer.shelf,
                adapters=loaded.adapters,
                encoder=self._start_encoder(loaded),
                on_fetched=self._wake,
                send=self._send if loaded.computes_apart else None,
            )
            self._interrupts = (self._engine.interrupt_prefill,)
        self._interrupts = (loaded.decode.interrupt, *self._interrupts)
        return Intake(
            loaded.model.vocab,
            loaded.settings,
            n_ctx=facts.n_ctx,
            growth=growth,
            shelf=self._transfer.shelf,
            mark=loaded.adapters.mark,
            media=loaded.media,
            early=early,
            tokenizer=loaded.embedder.tokenizer,
        )

    def _wake(self) -> None:
        self._commands.put(Wake())

    def _ask_to_grow(self, n_ctx: int) -> Future[int]:
        grown: Future[int] = Future()
        self._commands.put(GrowContext(n_ctx, grown))
        return grown

    def _start_encoder(self, loaded: LoadedModel) -> MediaEncoder | None:
        projector = loaded.projector
        if projector is None:
            return None
        encoder = MediaEncoder(projector.opened, embeddings_bytes(), self._wake)
        threading.Thread(target=_ending_process(encoder.run), name="encoder", daemon=True).start()
        return encoder

    def _write(self) -> None:
        """The body of the writer thread."""
        while True:
            self._channel.send(self._outbox.get())

    # The reader thread

    def _read(self) -> None:
        while True:
            message = self._channel.receive()
            match message:
                case None:
                    return
                case ShutdownRequest():
                    self._save(message)
                    return
                case PingRequest():
                    self._channel.send(self._pong(message.nonce))
                case AbortRequest():
                    self._abort(message)
                case MediaData():
                    self._attachments.add(message)
                case EngineRequest():
                    try:
                        self._intake.put(self._attachments.complete(message))
                    except Overloaded as error:
                        failed = Failed(id=message.id, code=error.code, payload=error.payload())
                        self._channel.send(failed)
                case LoadModel():
                    raise ProtocolError("a worker loads one model")
                case ReadState() | StoreState() | DropState():
                    self._transfer.put(message)
                case _:
                    self._intake.put(message)

    def _save(self, message: ShutdownRequest) -> None:
        """Let the engine thread save its cache to disk, unless a step keeps it busy for too long."""
        if self._engine is None:
            return
        self._commands.put(message)
        if self._saving.wait(_SAVE_BEGINS_S):
            self._saved.wait(_SAVE_S + _SAVE_BEGINS_S)

    def _abort(self, message: AbortRequest) -> None:
        """Abort a request that waits for the intake, is in it (the message follows it there), or is in the engine."""
        self._intake.skip(message.id)
        self._attachments.release(message.id)
        # First: the engine finds the abort among its commands when its decode is interrupted.
        self._commands.put(message)
        for interrupt in self._interrupts:
            interrupt(message.id)
        self._intake.put(message)

    def _pong(self, nonce: int) -> Pong:
        phase, seconds, request_id = self._phase.read()
        if phase == "idle":
            phase, since_s, request_id = self._intake.phase.read()
            seconds = min(seconds, since_s) if phase == "idle" else since_s
        stats = self._engine.stats() if self._engine is not None else EngineStats()
        rss_bytes, states = self._process.memory_info().rss, len(self._transfer.shelf)
        stats = msgspec.structs.replace(stats, states=states, rss_bytes=rss_bytes)
        return Pong(nonce=nonce, phase=phase, phase_s=seconds, phase_id=request_id, stats=stats)

    # The engine thread

    def _serve(self) -> None:
        engine = self._engine
        while True:
            busy = self._jobs.current is not None or (engine is not None and engine.can_step)
            for command in self._commands.take(wait=not busy):
                self._handle(command)
            job = self._jobs.current
            is_waited_for = job is not None and not job.background
            if engine is not None and engine.can_step and not (is_waited_for and engine.is_background):
                with self._embed_pacing.step():
                    events = engine.step()
                if events:
                    self._send(events)
            if job is not None and not (
                job.background and engine is not None and engine.can_step and not engine.is_background
            ):
                limit = BATCH_TOKENS if isinstance(job, OptionJob) else self._embedder.piece_tokens
                has_streams = engine is not None and engine.is_writing
                room = self._embed_pacing.room(has_streams=has_streams, limit=limit)
                if room:
                    if engine is not None:
                        engine.flush()
                    with self._embed_pacing.batch(room):
                        self._embed(job, room)

    def _send(self, events: list[EngineEvent]) -> None:
        for event in events:
            if isinstance(event, Failed | RequestCompleted):
                self._attachments.release(event.id)
        self._outbox.put(Step(tuple(events)))

    def _handle(self, command: Command) -> None:
        match command:
            case AbortRequest():
                self._jobs.drop(command.id)
                if self._engine is not None:
                    self._engine.abort(command.id)
            case Wake():
                if self._engine is not None:
                    self._engine.wake()
            case GrowContext():
                self._grow(command)
            case EmbedJob() | OptionJob():
                self._jobs.add(command)
            case ShutdownRequest():
                self._saving.set()
                if self._engine is not None:
                    self._engine.save(_SAVE_S)
                self._saved.set()
            case _:
                if self._engine is not None:
                    self._engine.add(command)

    def _grow(self, command: GrowContext) -> None:
        facts = self._facts
        assert self._engine is not None
        self._phase.enter("loading")
        try:
            if command.n_ctx > facts.n_ctx:
                check_growth(self._settings, facts, command.n_ctx)
                self._engine.grow(command.n_ctx)
                kv_bytes = command.n_ctx * kv_bytes_per_token(self._settings)
                self._facts = msgspec.structs.replace(facts, n_ctx=command.n_ctx, kv_bytes=kv_bytes)
                self._channel.send(ContextGrown(command.n_ctx, kv_bytes))
        except JanServeError as error:
            command.grown.set_exception(error)
        else:
            command.grown.set_result(self._facts.n_ctx)
        finally:
            self._phase.enter("idle")

    def _embed(self, job: EmbedJob | OptionJob, room: int) -> None:
        try:
            if isinstance(job, OptionJob):
                self._scorer.advance(
                    job, room, self._decode.embeds(job.request_id, job.adapters, self._phase)
                )
                answer = job.answer()
            else:
                answer = self._embedder.advance(job, self._phase, room=room)
        except JanServeError as error:
            self._jobs.drop(job.request_id)
            self._channel.send(Failed(id=job.request_id, code=error.code, payload=error.payload()))
        else:
            if answer is None:
                self._jobs.computed()
            else:
                self._jobs.drop(job.request_id)
                self._channel.send(answer)
        finally:
            self._phase.enter("idle")


def _ending_process(body: Callable[[], None]) -> Callable[[], None]:
    """Wraps the body of a thread: when it ends, so does the process, which the front notices."""

    def run() -> None:
        code = 0
        try:
            body()
        except BrokenPipeError:
            pass  # the front is gone
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stderr.flush()
        os._exit(code)

    return run


def _receive_load(channel: BlockingChannel) -> LoadModel | None:
    message = channel.receive()
    if message is None or isinstance(message, ShutdownRequest):
        return None
    if not isinstance(message, LoadModel):
        raise ProtocolError("the first frame of a worker is LoadModel")
    if message.protocol != PROTOCOL_VERSION:
        raise SettingsError(f"this worker speaks protocol {PROTOCOL_VERSION}, the front {message.protocol}")
    return message


def _early_tables(request: LoadModel) -> EarlyTables | None:
    """Tables of the model's vocabulary, which a thread makes from now on. None without a folder for files."""
    if request.settings.cache_dir is None:
        return None
    path = Path(request.path)
    folder = Path(request.settings.cache_dir) / "tokens"
    early = EarlyTables(KeptTokens(folder, lambda: state_key((path,), backend.version())))
    early.start()
    return early


def _load(channel: BlockingChannel, request: LoadModel) -> LoadedModel | None:
    """Load, reporting progress. None, after LoadFailed is sent, if the model cannot be loaded."""
    reported = -1.0

    def on_progress(fraction: float) -> bool:
        nonlocal reported
        if fraction - reported >= 0.01 or fraction >= 1.0:
            reported = fraction
            channel.send(LoadProgress(fraction))
        return True

    try:
        return load(request, on_progress)
    except JanServeError as error:
        channel.send(LoadFailed(code=error.code, payload=error.payload()))
        return None


def probe(peers: Sequence[str] = ()) -> None:
    """Print one JSON line about the llama.cpp build and its devices, for `jan-serve doctor`.

    peers: HOST:PORT of machines that lend devices.
    """
    backend.start()
    missing = connect_peers(peers)
    facts = {
        **backend.build_features(),
        "missing_peers": missing,
        "devices": [msgspec.to_builtins(device) for device in backend.devices()],
        "accelerators": [msgspec.to_builtins(device) for device in backend.accelerators()],
    }
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    """Entry point of the hidden subcommand: serve one model over stdin and stdout, or `--probe`."""
    words = arguments if arguments is not None else sys.argv[2:]
    if words[:1] == ["--probe"]:
        probe(words[1:])
        return 0
    if words[:1] == ["--rpc-serve"]:
        from jan_serve.engine.llama.rpc_serving import main as serve_rpc

        return serve_rpc(words[1:])
    channel = take_over_stdio()
    end_with_parent()
    write_no_core_dump()
    backend.start()
    try:
        request = _receive_load(channel)
        if request is None:
            return 0
        return Worker(channel, request).run()
    except BrokenPipeError:
        return 0

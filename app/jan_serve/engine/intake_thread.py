"""The worker's intake thread: prepares requests in parts for the engine thread, and answers those about tokens."""

from __future__ import annotations

import queue
import traceback
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from jan_serve.engine.engine import Engine
from jan_serve.engine.intake import Intake
from jan_serve.engine.loading.loader import LoadedModel
from jan_serve.engine.queues import ClientQueue, CommandQueue
from jan_serve.engine.stats import PhaseClock
from jan_serve.engine.tokenizing import Work
from jan_serve.errors import EngineFailure, JanServeError, UnsupportedOperation, shortage
from jan_serve.ipc.attachments import Attachments
from jan_serve.ipc.messages import (
    AbortRequest,
    Accepted,
    Counted,
    CountRequest,
    Detokenized,
    DetokenizeRequest,
    EmbedRequest,
    EngineRequest,
    Failed,
    Step,
    Tokenized,
    TokenizeRequest,
    WorkerEvent,
)
from jan_serve.ipc.scoring import RankRequest, WeighOptions

_TokenRequest = CountRequest | TokenizeRequest | DetokenizeRequest
PreparedItem = EngineRequest | EmbedRequest | RankRequest | WeighOptions | _TokenRequest


class _Job(msgspec.Struct, eq=False):
    """A request and the rest of its preparation."""

    item: PreparedItem
    work: Work[None]


IntakeItem = PreparedItem | AbortRequest | _Job

_PIECES: Final = 4096  # tokens whose bytes are looked up, or ids that are checked, in one part
_REST_S = 0.5  # time after the last request until the worker uses its rest for work ahead
_SHORTAGE_S = 10.0  # time until it tries again if there was no memory, or no descriptor


class IntakeThread:
    """`run` is its body. Requests wait until then."""

    def __init__(
        self, send: Callable[[WorkerEvent], None], commands: CommandQueue, attachments: Attachments
    ) -> None:
        self._send = send
        self._commands = commands
        self._attachments = attachments
        self._items: queue.SimpleQueue[IntakeItem] = queue.SimpleQueue()
        self._aborted: set[int] = set()
        self._jobs: dict[int, _Job] = {}
        self._turns = ClientQueue[_Job]()
        self.phase = PhaseClock()
        self.phase.enter("idle")

    def put(self, item: IntakeItem) -> None:
        """Any thread; never blocks. An abort tells the engine once more, after the request that it follows."""
        self._items.put(item)

    def skip(self, request_id: int) -> None:
        """Do not begin this request. Any thread; `put` of the abort must follow."""
        self._aborted.add(request_id)

    def run(self, loaded: LoadedModel, intake: Intake, engine: Engine | None) -> None:
        """Prepare requests for ever. engine: None if the model only embeds."""
        while True:
            while not self._items.empty() or not self._turns:
                item = self._items.get() if self._turns else self._next(intake, engine)
                match item:
                    case AbortRequest():
                        self._aborted.discard(item.id)
                        self._drop(item.id)
                        self._commands.put(item)
                    case _Job():
                        self._turns.put(item.item.client, item)
                    case _ if item.id not in self._aborted:
                        job = _Job(item, self._prepare(item, loaded, intake, engine))
                        self._jobs[item.id] = job
                        self._turns.put(item.client, job)
                    case _:
                        pass
            self._advance(self._turns.take())

    def _drop(self, request_id: int) -> None:
        job = self._jobs.pop(request_id, None)
        if job is not None:
            job.work.close()
        if not self._jobs:
            self.phase.enter("idle")

    def _advance(self, job: _Job) -> None:
        """Do the next part of a job, unless it was dropped."""
        item = job.item
        if self._jobs.get(item.id) is not job or item.id in self._aborted:
            return
        self.phase.enter("tokenize", item.id)
        try:
            future = next(job.work)
        except StopIteration:
            self._drop(item.id)
        except Exception as error:
            self._fail(item.id, error if isinstance(error, JanServeError) else _failure(error))
        else:
            if future is None:
                self._turns.put(item.client, job)
            else:
                future.add_done_callback(lambda _: self._items.put(job))

    def _next(self, intake: Intake, engine: Engine | None) -> IntakeItem:
        """Waits. While the worker rests, makes the tables that its first grammar would wait for."""
        tables, wait_s = intake.token_tables, _REST_S
        while engine is not None and not tables.complete:
            try:
                return self._items.get(timeout=wait_s)
            except queue.Empty:
                wait_s = _REST_S
                if not engine.has_work:
                    wait_s = 0.0
                    try:
                        tables.advance()
                    except Exception as error:
                        if shortage(error) is None:
                            raise
                        wait_s = _SHORTAGE_S
        return self._items.get()

    def _prepare(
        self, item: PreparedItem, loaded: LoadedModel, intake: Intake, engine: Engine | None
    ) -> Work[None]:
        vocab = loaded.model.vocab
        match item:
            case EngineRequest():
                if engine is None:
                    raise UnsupportedOperation(
                        "this model only embeds: it cannot generate text", param="model"
                    )
                sequences = yield from intake.prepare(item)
                self._send(Step((Accepted(item.id, sequences[0].state.prompt_length),)))
                self._commands.put(sequences)
                if not item.background:
                    engine.make_way()
            case EmbedRequest():
                self._commands.put((yield from loaded.embedder.start(item)))
                if engine is not None and not item.background:
                    engine.make_way()
            case RankRequest():
                self._commands.put((yield from loaded.scoring.rank(item)))
            case WeighOptions():
                self._commands.put((yield from loaded.scoring.weigh(item)))
            case CountRequest():
                self._send(Counted(item.id, (yield from intake.count(item))))
            case TokenizeRequest():
                ids = yield from intake.tokenizer.tokens(
                    item.text, add_special=item.add_special, parse_special=item.parse_special, param="text"
                )
                for start in range(0, max(len(ids), 1), _PIECES):
                    part = ids[start : start + _PIECES]
                    pieces = [vocab.piece(token, special=True) for token in part] if item.with_pieces else []
                    self._send(Tokenized(item.id, part, pieces, is_last=start + _PIECES >= len(ids)))
                    yield None
            case DetokenizeRequest():
                for start in range(0, len(item.tokens), _PIECES):
                    intake.tokenizer.check_ids(item.tokens[start : start + _PIECES], "tokens")
                    yield None
                detokenize = partial(vocab.detokenize, item.tokens, remove_special=item.skip_special_tokens)
                is_long = len(item.tokens) > _PIECES
                data = (yield from intake.tokenizer.aside(detokenize)) if is_long else detokenize()
                self._send(Detokenized(item.id, data.decode("utf-8", "replace")))

    def _fail(self, request_id: int, error: JanServeError) -> None:
        self._drop(request_id)
        self._attachments.release(request_id)
        self._send(Failed(id=request_id, code=error.code, payload=error.payload()))


def _failure(error: Exception) -> JanServeError:
    """What fails the request alone: it did not reach the engine, which goes on."""
    if (lacking := shortage(error)) is not None:  # others may have taken it for a moment
        return lacking
    traceback.print_exc()
    return EngineFailure(
        f"The engine could not prepare the request ({type(error).__name__}). The log of level debug has the traceback."
    )

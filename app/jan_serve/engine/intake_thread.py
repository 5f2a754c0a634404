"""The worker's intake thread: prepares each request for the engine thread, and answers those about tokens."""

from __future__ import annotations

import queue
import traceback
from collections.abc import Callable

from jan_serve.engine.command_queue import CommandQueue
from jan_serve.engine.engine import Engine
from jan_serve.engine.intake import Intake
from jan_serve.engine.loader import LoadedModel
from jan_serve.engine.media.attachments import Attachments
from jan_serve.errors import EngineFailure, JanServeError, UnsupportedOperation
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

PreparedItem = (
    EngineRequest
    | EmbedRequest
    | RankRequest
    | WeighOptions
    | CountRequest
    | TokenizeRequest
    | DetokenizeRequest
)
IntakeItem = PreparedItem | AbortRequest

_REST_S = 0.5
"""After the last request, until the worker uses its rest for work ahead."""


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

    def put(self, item: IntakeItem) -> None:
        """Any thread; never blocks. An abort tells the engine once more, after the request that it follows."""
        self._items.put(item)

    def skip(self, request_id: int) -> None:
        """Do not begin this request. Any thread; `put` of the abort must follow."""
        self._aborted.add(request_id)

    def run(self, loaded: LoadedModel, intake: Intake, engine: Engine | None) -> None:
        """Prepare requests for ever. engine: None if the model only embeds."""
        while True:
            item = self._next(intake, engine)
            if isinstance(item, AbortRequest):
                self._aborted.discard(item.id)
                self._commands.put(item)
            elif item.id not in self._aborted:
                try:
                    self._prepare(item, loaded, intake, engine)
                except JanServeError as error:
                    self._fail(item.id, error)
                except Exception:
                    # A bug of ours that did not reach the engine: only this request fails.
                    traceback.print_exc()
                    self._fail(
                        item.id,
                        EngineFailure("The engine could not prepare the request. Its log has the reason."),
                    )

    def _next(self, intake: Intake, engine: Engine | None) -> IntakeItem:
        """Waits. While the worker rests, makes the tables that its first grammar would wait for."""
        tables, wait_s = intake.token_tables, _REST_S
        while engine is not None and not tables.complete:
            try:
                return self._items.get(timeout=wait_s)
            except queue.Empty:
                wait_s = _REST_S
                if not engine.has_work:
                    tables.advance()
                    wait_s = 0.0
        return self._items.get()

    def _prepare(
        self, item: PreparedItem, loaded: LoadedModel, intake: Intake, engine: Engine | None
    ) -> None:
        vocab = loaded.model.vocab
        match item:
            case EngineRequest():
                if engine is None:
                    raise UnsupportedOperation(
                        "this model only embeds: it cannot generate text", param="model"
                    )
                sequences = intake.prepare(item)
                self._send(Step((Accepted(item.id, sequences[0].state.prompt_length),)))
                self._commands.put(sequences)
            case EmbedRequest():
                self._commands.put(loaded.embedder.start(item))
            case RankRequest():
                self._commands.put(loaded.scorer.intake.rank(item))
            case WeighOptions():
                self._commands.put(loaded.scorer.intake.weigh(item))
            case CountRequest():
                self._send(Counted(item.id, intake.count(item)))
            case TokenizeRequest():
                ids = vocab.tokenize(
                    item.text, add_special=item.add_special, parse_special=item.parse_special
                )
                pieces = [vocab.piece(token, special=True) for token in ids] if item.with_pieces else []
                self._send(Tokenized(item.id, tuple(ids), tuple(pieces)))
            case DetokenizeRequest():
                intake.check_token_ids(item.tokens, "tokens")
                data = vocab.detokenize(item.tokens, remove_special=item.skip_special_tokens)
                self._send(Detokenized(item.id, data.decode("utf-8", "replace")))

    def _fail(self, request_id: int, error: JanServeError) -> None:
        self._attachments.release(request_id)
        self._send(Failed(id=request_id, code=error.code, payload=error.payload()))

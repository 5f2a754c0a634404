"""Answers that go on without their client, and after the end of the server: its journal has each event before a client.

A chunk of events is in the journal before the next is asked for. Meanwhile the engine's chunks merge, so that a slow
disk makes few large transactions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any, Final

import msgspec
from pydantic import TypeAdapter

from jan_serve.core.caller import cache_salt, client
from jan_serve.core.closing import closing
from jan_serve.core.events import Completed
from jan_serve.core.trace import begin_trace
from jan_serve.core.transcript import current
from jan_serve.dialects.openai.render_common import ReplyFacts
from jan_serve.dialects.openai.responses.parse import ParsedResponse, response_request
from jan_serve.dialects.openai.responses.render import ResponseEvents
from jan_serve.dialects.openai.responses.store import KeptResponse, ResponseStore
from jan_serve.dialects.openai.responses.wire import CreateResponseRequest, InputItem
from jan_serve.dialects.openai.responses.wire_reply import Event, ResponseBody
from jan_serve.errors import Draining, InvalidState, JanServeError, StoreError
from jan_serve.generation.service import GenerationService
from jan_serve.http.errors import logged_problem, unexpected_problem
from jan_serve.http.replies import json_bytes, named_frame
from jan_serve.http.request_record import RequestRecord
from jan_serve.journal.answers import AnswerTable, OpenAnswer, WholeAnswer
from jan_serve.journal.background import Background
from jan_serve.journal.logs import LogWriter, Work

logger = logging.getLogger(__name__)

_CONTINUED: Final = frozenset({"completed", "incomplete"})
_DONE: Final = _CONTINUED | {"failed", "cancelled"}


_ITEMS: Final[TypeAdapter[list[InputItem]]] = TypeAdapter(list[InputItem])


class Asked(msgspec.Struct, frozen=True):
    """A request that was read. items: of its input; before: the answer that it continues."""

    body: CreateResponseRequest
    parsed: ParsedResponse
    items: Sequence[InputItem]
    before: KeptResponse | None = None

    @property
    def earlier(self) -> Sequence[InputItem]:
        """The conversation before the request."""
        return self.before.items if self.before is not None else ()

    def renderer(self, answer: OpenAnswer) -> ResponseEvents:
        head = ReplyFacts(answer.id, answer.created, self.body.model)
        return ResponseEvents(head, self.body, self.parsed)

    def as_json(self, raw: dict[str, Any]) -> bytes:
        """The request with its whole conversation, for a server that has not kept what it continues."""
        items = [*self.earlier, *self.items]
        return json_bytes(
            {**raw, "input": [item.model_dump(by_alias=True, exclude_none=True) for item in items]}
        )

    @classmethod
    def from_json(cls, data: bytes) -> Asked:
        """Raises ValueError, DecodeError and InvalidRequest for what another version wrote, or a damaged disk has."""
        raw = msgspec.json.decode(data, type=dict[str, Any])
        # Not as the input of a request: a conversation may have more items than one request brings.
        items = _ITEMS.validate_python(raw["input"])
        body = CreateResponseRequest.model_validate(raw | {"input": []})
        return cls(body, response_request(body, (), items), items)


class LiveAnswer:
    """An answer that is being written. frames: its events so far, by their sequence numbers.

    body: the answer as its last event with a `response` has it. is_ending: its last event is decided. written: done
    once this server writes no more of it.
    """

    def __init__(self, answer: OpenAnswer, asked: Asked) -> None:
        self.answer = answer
        self.asked = asked
        self.renderer = asked.renderer(answer)
        self.frames: list[bytes] = []
        self.is_cancelled = False
        self.is_ending = False
        self.written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changed = asyncio.Event()
        self.body: ResponseBody
        self.publish(self.renderer.queued())

    @property
    def is_done(self) -> bool:
        return self.body["status"] in _DONE

    def publish(self, events: Iterable[Event]) -> None:
        for event in events:
            if "response" in event:
                self.body = event["response"]
            self.frames.append(named_frame(event))
        self._wake()

    def leave(self) -> None:
        """This server writes no more of it: the streams of its readers end."""
        if not self.written.done():
            self.written.set_result(None)
        self._wake()

    async def follow(self, after: int) -> AsyncGenerator[bytes]:
        """The frames behind this sequence number. A reader that is further gets the last one: what it has read could
        not go on."""
        number = after + 1
        while True:
            changed, is_last = self._changed, self.written.done()
            for frame in self.frames[number:]:
                number += 1
                yield frame
            if is_last:
                if self.is_done and number == after + 1:
                    yield self.frames[-1]
                return
            await changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class StoredResponses:
    """The answers of a server, of all keys: those in memory, and those in the background, which the journal has."""

    def __init__(self, service: GenerationService, background: Background, store: ResponseStore) -> None:
        """store: gets the whole answers, for requests that continue them."""
        self.store = store
        self._service = service
        self._background = background
        self._table = AnswerTable(background.journal)
        self._live: dict[str, LiveAnswer] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._resuming = asyncio.Lock()
        self._is_resumed = False

    def foreground(self, answer_id: str) -> KeptResponse | None:
        """One of this caller in memory, that the journal knows nothing of."""
        found = self.store.get(cache_salt.get(), answer_id)
        return None if found is None or found.body["background"] else found

    async def find(self, answer_id: str) -> KeptResponse | None:
        """An answer of this caller that can be continued."""
        owner = cache_salt.get()
        if self.store.get(owner, answer_id) is None:
            await self.whole(answer_id)
        return self.store.get(owner, answer_id)

    async def live(self, answer_id: str) -> LiveAnswer | None:
        """One of this caller that is being written, also if an earlier server began it. Raises StoreError."""
        if answer_id not in self._live:
            await self.resume()
        found = self._live.get(answer_id)
        return found if found is not None and found.answer.owner == cache_salt.get() else None

    async def whole(self, answer_id: str) -> WholeAnswer | None:
        """One of this caller that is whole, which the store gets again. Raises StoreError."""
        owner = cache_salt.get()
        if not self._background.journal.exists:
            return None
        whole = await self._table.find(owner, answer_id)
        if whole is not None and self.store.get(owner, answer_id) is None:
            asked = _read(answer_id, whole.request)
            if asked is not None:
                self._keep(owner, asked, msgspec.json.decode(whole.reply))
        return whole

    def _keep(self, owner: str, asked: Asked, body: ResponseBody) -> None:
        if body["status"] in _CONTINUED:
            self.store.keep(owner, body, asked.before, asked.items)

    async def begin(
        self, answer_id: str, created: int, asked: Asked, raw: dict[str, Any], record: RequestRecord
    ) -> LiveAnswer:
        """raw: the request as it came. record: sees the answer. Raises StoreError."""
        await self.resume()
        answer = OpenAnswer(answer_id, cache_salt.get(), created, asked.as_json(raw))
        await self._table.begin(answer)
        return self._started(answer, asked, record)

    async def resume(self) -> None:
        """Go on with what an earlier server left, once. Raises StoreError."""
        async with self._resuming:
            if self._is_resumed:
                return
            if self._background.journal.exists:
                for answer in await self._table.open_answers():
                    if answer.id in self._live:  # taken up by a call that failed at a later one
                        continue
                    asked = _read(answer.id, answer.request)
                    if asked is not None:
                        self._started(answer, asked)
                    else:
                        await self._table.end(answer.id, _unreadable(answer), ())
            self._is_resumed = True

    async def cancel(self, live: LiveAnswer) -> None:
        """End it, with what it has. One that ends already stays as it is."""
        task = self._tasks.get(live.answer.id)
        if task is not None and not live.is_ending and not live.is_cancelled:
            live.is_cancelled = True
            task.cancel()
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)
        if not live.is_ending:  # its task had not begun
            await self._end(live, [live.renderer.cancelled()])

    async def delete(self, answer_id: str) -> bool:
        """Delete an answer of this caller; returns whether it existed."""
        owner = cache_salt.get()
        is_foreground, is_kept = self.foreground(answer_id) is not None, self.store.delete(owner, answer_id)
        if is_foreground:
            return True
        live = await self.live(answer_id)
        if live is not None and not live.is_done:
            await self.cancel(live)
        known = self._live.pop(answer_id, None) if live is not None else None
        is_stored = self._background.journal.exists and await self._table.delete(owner, answer_id)
        return is_kept or is_stored or known is not None

    def _started(self, answer: OpenAnswer, asked: Asked, record: RequestRecord | None = None) -> LiveAnswer:
        live = self._live[answer.id] = LiveAnswer(answer, asked)
        task = self._background.run(self._write(live, record), f"response {answer.id}")
        self._tasks[answer.id] = task
        if record is not None:
            record.written = live.written
        task.add_done_callback(lambda _: self._left(live))
        return live

    def _left(self, live: LiveAnswer) -> None:
        self._tasks.pop(live.answer.id, None)
        if not live.is_cancelled:  # else `cancel` ends it
            live.leave()

    async def _write(self, live: LiveAnswer, record: RequestRecord | None) -> None:
        """record: None for an answer that another server began; a request of another key may have taken it up."""
        answer = live.answer
        if record is None:
            cache_salt.set(answer.owner)
            client.set(f"responses of {answer.owner}")
            record = RequestRecord(answer.id, trace=begin_trace())
        try:
            transcript = answer.log.transcript(answer.id, answer.created)
            current.set(transcript)
            log = LogWriter(self._background.journal, Work(answer.owner, answer.id), transcript)
            async with closing(self._service.generate(live.asked.parsed.generation)) as events:
                async for event in events:
                    record.observe(event)
                    await log.store()
                    if isinstance(event, Completed):
                        await self._end(live, live.renderer.chunks(event))
                    else:
                        live.publish(live.renderer.chunks(event))
        except (asyncio.CancelledError, Draining):
            if not live.is_cancelled:
                raise
            record.cancelled = True
            await self._end(live, [live.renderer.cancelled()])
        except JanServeError as error:
            if isinstance(error, InvalidState):  # which the journal has: the request has none
                error = StoreError(error.message)
            record.error = error.code
            await self._end(live, [live.renderer.failed(logged_problem(error, answer.id))])
        except Exception as error:
            logger.exception("%s failed", answer.id)
            problem = unexpected_problem(error)
            record.error = problem.code
            await self._end(live, [live.renderer.failed(problem)])

    async def _end(self, live: LiveAnswer, events: Iterable[Event]) -> None:
        """The last events. A whole answer that the journal cannot take stays in memory."""
        live.is_ending = True
        last = [*events]
        frames = [*live.frames, *map(named_frame, last)]
        try:
            await self._table.end(live.answer.id, json_bytes(last[-1]["response"]), frames)
        except StoreError as error:
            logger.error("%s is whole, but not in the journal: %s", live.answer.id, error.message)
        else:
            self._live.pop(live.answer.id, None)
        live.publish(last)
        live.leave()
        self._keep(live.answer.owner, live.asked, live.body)


def _read(answer_id: str, request: bytes) -> Asked | None:
    """None for a request of the journal that this version cannot read, which the log tells."""
    try:
        return Asked.from_json(request)
    except (ValueError, KeyError, msgspec.DecodeError, JanServeError) as error:
        logger.error("the request of %s in the journal cannot be read: %s", answer_id, error)
        return None


def _unreadable(answer: OpenAnswer) -> bytes:
    """The reply to a request that cannot be read."""
    asked = Asked.from_json(json_bytes({"input": [{"role": "user", "content": ""}], "background": True}))
    error = StoreError("The request of this answer cannot be read in the journal. Send it again.")
    return json_bytes(asked.renderer(answer).failed(logged_problem(error, answer.id))["response"])

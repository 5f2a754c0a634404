"""Answers the lines of batches, the oldest batch that can run first, as many at once as the model has places.

What a line asks runs like a request of its owner. Its answer is stored here, and from time to time what is written of
it: whatever ends this task, another one goes on with the lines that have no answer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, Protocol

import msgspec

from jan_serve.core.transcript import Transcript
from jan_serve.errors import InvalidState, JanServeError, StoreError, shortage
from jan_serve.journal.background import Background
from jan_serve.journal.batches import (
    Batch,
    BatchTable,
    Counts,
    EndedLine,
    Line,
    LineFault,
    OpenLine,
    Reply,
    State,
)
from jan_serve.journal.files import new_file
from jan_serve.journal.logs import Log, LogWriter, Work, forget_log
from jan_serve.journal.tables import KEPT_S

logger = logging.getLogger(__name__)

_BUSY: Final = frozenset({429, 503, 504, 529})
"""Statuses that say nothing of the line."""
_LONGEST_WAIT_S: Final = 60.0
_LOOK_S: Final = 5.0
"""Longest interval between looks at what forbids work."""

_LOG_S: Final = 1.0
"""Interval between two writes of what a line has got: a kill costs so much of it. Nobody waits for single events."""

Call = Callable[[Batch, Line, Transcript], Coroutine[Any, Any, Reply]]
"""The answer to a line, in a task of its own. The transcript gets its events."""


class FaultyInput(Exception):
    """An input that is no batch. faults: the first ones."""

    def __init__(self, faults: Sequence[LineFault]) -> None:
        super().__init__(faults[0].message)
        self.faults = tuple(faults)


class BatchForm(Protocol):
    """How a dialect writes the files of a batch. Pure."""

    def lines(self, batch: Batch, content: bytes) -> list[Line]:
        """The lines of an input. Raises FaultyInput."""
        ...

    def outputs(self, batch: Batch, lines: Iterable[EndedLine], end: State) -> tuple[bytes, bytes]:
        """The contents of the files of answers and of errors; empty for no file."""
        ...


class Conditions(Protocol):
    """When lines of batches may run."""

    def places(self, model: str | None) -> int:
        """How many lines for this model may run at once."""
        ...

    def pause(self, model: str | None) -> str | None:
        """Why no line for this model may begin now."""
        ...


class _Hold(msgspec.Struct, frozen=True):
    """Why a batch waits, until when (monotonic), and how many times in succession it does."""

    reason: str
    until: float
    times: int


class BatchRunner:
    """One task for all batches, while there are any. Event loop only."""

    def __init__(self, background: Background, call: Call, conditions: Conditions) -> None:
        self.table: Final = BatchTable(background.journal)
        self.paused: dict[str, str] = {}
        """Why no line begins, by batches."""
        self._holds: dict[str, _Hold] = {}
        self._unstored: dict[tuple[str, int], Reply] = {}
        """Answers that the journal could not take, by batches and lines: they are not computed again."""
        self._background = background
        self._call = call
        self._conditions = conditions
        self._forms: dict[str, Callable[[], BatchForm]] = {}
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        background.at_start(self._begin)

    def register(self, dialect: str, form: Callable[[], BatchForm]) -> None:
        """form: called at each use, so that a start imports none."""
        self._forms[dialect] = form

    def wake(self) -> None:
        """There is a batch, or the state of one has changed."""
        self._holds.clear()
        self._changed.set()
        if self._task is None or self._task.done():
            self._task = self._background.run(self._run(), "batches")

    async def cancel(self, batch: Batch) -> Batch:
        """End it, and return it as it is then: it may have ended just before. Raises StoreError."""
        if batch.has_ended or batch.state == "cancelling":
            return batch
        cancelling = batch.became("cancelling", int(time.time()))
        if not await self.table.change(cancelling):
            return await self.table.find(batch.owner, batch.id) or batch
        self.wake()
        return cancelling

    async def _begin(self) -> None:
        self.wake()

    async def _run(self) -> None:
        while True:
            try:
                batches = await self._settled()
                found = {batch.id: self._pause(batch) for batch in batches}
                self.paused = {name: reason for name, reason in found.items() if reason is not None}
                able = (each for each in batches if each.state == "in_progress" and found[each.id] is None)
                if (batch := next(able, None)) is not None:
                    await self._guarded(batch, self._work(batch))
                elif batches:
                    await self._wait({})
                elif not self._changed.is_set():
                    return
            except Exception as error:
                logger.error("batches wait: %s", error, exc_info=not isinstance(error, JanServeError))
                await asyncio.sleep(_LONGEST_WAIT_S)

    async def _settled(self) -> list[Batch]:
        """Check the new batches, and end those that are cancelled or expired: this needs no model.

        Returns those that are open then, the oldest first.
        """
        self._changed.clear()
        for batch in await self.table.open_batches():
            if self._held(batch) is not None:
                continue
            is_over = batch.expires <= time.time()
            if batch.state == "cancelling":
                await self._guarded(batch, self._end(batch, "cancelled"))
            elif is_over and (batch.state == "in_progress" or batch.id in self._holds):
                await self._guarded(batch, self._end(batch, "expired"))
            elif batch.state == "validating":
                await self._guarded(batch, self._check(batch))
        batches = await self.table.open_batches()
        names = {batch.id for batch in batches}
        self._holds = {name: hold for name, hold in self._holds.items() if name in names}
        self._unstored = {key: reply for key, reply in self._unstored.items() if key[0] in names}
        return batches

    async def _guarded(self, batch: Batch, work: Awaitable[None]) -> None:
        """Whatever fails in the work of one batch stops no other. Raises StoreError if it cannot be ended."""
        try:
            await work
        except StoreError as error:
            self._hold(batch, error.message)
        except Exception as error:
            if (lacking := shortage(error)) is not None:
                self._hold(batch, lacking.message)
                return
            logger.exception("%s failed", batch.id)
            fault = LineFault("server_error", "The server failed at this batch. Its log says why.")
            await self.table.end(batch.became("failed", int(time.time()), faults=(fault,)), ())

    def _hold(self, batch: Batch, reason: str) -> None:
        """Let it wait, longer each time until one of its lines is answered."""
        if self._held(batch) is not None:
            return
        before = self._holds.get(batch.id)
        times = before.times + 1 if before is not None else 0
        wait_s = min(_LONGEST_WAIT_S, 2.0 ** min(times, 10))
        self._holds[batch.id] = _Hold(reason, time.monotonic() + wait_s, times)
        logger.warning("%s waits for %g s: %s", batch.id, wait_s, reason)

    def _held(self, batch: Batch) -> str | None:
        hold = self._holds.get(batch.id)
        return hold.reason if hold is not None and hold.until > time.monotonic() else None

    def _pause(self, batch: Batch) -> str | None:
        return self._held(batch) or self._conditions.pause(batch.facts.model)

    async def _check(self, batch: Batch) -> None:
        content = await self.table.content(batch.id)
        now = int(time.time())
        try:
            lines = await asyncio.to_thread(self._forms[batch.dialect]().lines, batch, content)
        except FaultyInput as error:
            await self.table.end(batch.became("failed", now, faults=error.faults), ())
        else:
            await self.table.began(batch.became("in_progress", now, model=_model_of(lines[0])), lines)

    async def _end(self, batch: Batch, end: State) -> None:
        now = int(time.time())
        lines = await self.table.lines(batch.id)
        contents = await asyncio.to_thread(self._forms[batch.dialect]().outputs, batch, lines, end)
        ttl_s = batch.facts.output_ttl_s or KEPT_S
        names = f"{batch.id}_output.jsonl", f"{batch.id}_error.jsonl"
        files = [
            (new_file(batch.owner, now, "batch_output", name, len(content), now + ttl_s), content)
            if content
            else None
            for name, content in zip(names, contents, strict=True)
        ]
        output, errors = (file[0].id if file is not None else None for file in files)
        ended = batch.became(end, now, output_file=output, error_file=errors, counts=_counts(lines))
        await self.table.end(ended, [file for file in files if file is not None])

    async def _work(self, batch: Batch) -> None:
        """Answer lines until there are none, the batch has ended, or something forbids to begin one."""
        running: dict[int, asyncio.Task[None]] = {}
        try:
            while True:
                paused = self._pause(batch) is not None
                room = 0 if paused else self._conditions.places(batch.facts.model) - len(running)
                if room > 0:
                    for line in await self.table.open_lines(batch, [*running], room):
                        work = self._answer(batch, line)
                        running[line.number] = asyncio.create_task(work, name=f"{batch.id} {line.number}")
                    if not running:
                        return await self._end(batch, "completed")
                elif not running:
                    return None
                await self._wait(running)
                if batch.id not in {each.id for each in await self._settled()}:
                    return None
        finally:
            for task in running.values():
                task.cancel()
            await asyncio.gather(*running.values(), return_exceptions=True)

    async def _wait(self, running: dict[int, asyncio.Task[None]]) -> None:
        """Wait for an answer, a change, or the time to look again. Raises what the answer of a line raised."""
        changed = asyncio.ensure_future(self._changed.wait())
        now = time.monotonic()
        ends = [hold.until - now for hold in self._holds.values() if hold.until > now]
        try:
            await asyncio.wait(
                [changed, *running.values()],
                timeout=min([_LOOK_S, *ends]),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            changed.cancel()
        for number, task in list(running.items()):
            if task.done():
                del running[number]
                task.result()

    async def _answer(self, batch: Batch, line: OpenLine) -> None:
        key = batch.id, line.number
        reply = self._unstored.pop(key, None) or await self._reply(batch, line)
        if reply.status in _BUSY:
            self._hold(batch, f"the server is busy, or has not got the model (status {reply.status})")
            return
        try:
            await self.table.answer(batch, line.number, reply)
        except StoreError as error:
            self._unstored[key] = reply
            self._hold(batch, error.message)
        else:
            self._holds.pop(batch.id, None)

    async def _reply(self, batch: Batch, line: OpenLine) -> Reply:
        """Goes on with what is written. An error says nothing of the line then, but may of the log: it begins anew."""
        work, is_begun = Work(batch.owner, batch.id, line.number), line.log != Log()
        try:
            transcript = line.log.transcript(f"{batch.id} {line.number}", int(time.time()))
            reply = await self._logged(batch, line, transcript)
        except InvalidState:
            if not is_begun:
                raise
            reply = None
        if reply is not None and not (is_begun and reply.status >= 400 and reply.status not in _BUSY):
            return reply
        logger.warning("%s begins anew: what is written of it is useless", work)
        await forget_log(self._background.journal, work)
        return await self._reply(batch, OpenLine(line.number, line.line))

    async def _logged(self, batch: Batch, line: OpenLine, transcript: Transcript) -> Reply:
        log = LogWriter(self._background.journal, Work(batch.owner, batch.id, line.number), transcript)
        call = asyncio.create_task(self._call(batch, line.line, transcript))
        try:
            while not (await asyncio.wait([call], timeout=_LOG_S))[0]:
                await log.store()
            # Who cancels the line cancels this task; anything else says nothing of the line.
            return Reply(503, b"", "") if call.cancelled() else call.result()
        finally:
            if not call.done():
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
                await log.store()


def _model_of(line: Line) -> str | None:
    model = msgspec.json.decode(line.body).get("model")
    return model if isinstance(model, str) and model else None


def _counts(lines: Sequence[EndedLine]) -> Counts:
    replies = [line.reply for line in lines if line.reply is not None]
    return Counts(len(lines), len(replies), sum(reply.status >= 400 for reply in replies))

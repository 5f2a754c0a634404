"""Answers the lines of batches, the oldest batch first, as many at once as the model has places.

What a line asks runs like a request of its owner. Only its answer is stored here, so that whatever ends this task,
another one goes on with the lines that have none.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Protocol

import msgspec

from jan_serve.errors import JanServeError
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
from jan_serve.journal.expiry import KEPT_S
from jan_serve.journal.files import new_file

logger = logging.getLogger(__name__)

_BUSY: Final = frozenset({429, 503, 504, 529})
"""Statuses that say nothing of the line."""
_TRIES: Final = 6
_LONGEST_WAIT_S: Final = 60.0
_LOOK_S: Final = 5.0
"""Interval between looks at what forbids work."""

Call = Callable[[str, Line], Awaitable[Reply]]
"""The answer to a line of this owner. Cancelling it ends its work."""


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
    """What the server allows."""

    def places(self, model: str | None) -> int:
        """How many lines for this model may run at once."""
        ...

    def pause(self, model: str | None) -> str | None:
        """Why no line for this model may begin now."""
        ...


class BatchRunner:
    """One task for all batches, while there are any. Event loop only."""

    def __init__(self, background: Background, call: Call, conditions: Conditions) -> None:
        self.table: Final = BatchTable(background.journal)
        self.paused: str | None = None
        """Why no line begins."""
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
        self._changed.set()
        if self._task is None or self._task.done():
            self._task = self._background.run(self._run(), "batches")

    async def _begin(self) -> None:
        self.wake()

    async def _run(self) -> None:
        while True:
            try:
                await self._settle()
                batch = await self.table.next_running()
                if batch is not None:
                    if await self._answer_lines(batch):
                        await self._end(batch, "completed")
                elif not self._changed.is_set():
                    return
            except JanServeError as error:
                # A journal that is full or cannot be written: its lines wait, and none is answered twice.
                logger.error("batches wait: %s", error.message)
                await asyncio.sleep(_LONGEST_WAIT_S)

    async def _settle(self) -> None:
        """Check the new batches, and end those that are cancelled or expired: this needs no model."""
        self._changed.clear()
        while (batch := await self.table.next_unsettled(int(time.time()))) is not None:
            match batch.state:
                case "validating":
                    await self._check(batch)
                case "cancelling":
                    await self._end(batch, "cancelled")
                case _:
                    await self._end(batch, "expired")

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
        output, errors = files
        ended = batch.became(
            end,
            now,
            output_file=output[0].id if output else None,
            error_file=errors[0].id if errors else None,
            counts=_counts(lines),
        )
        await self.table.end(ended, [file for file in files if file is not None])

    async def _answer_lines(self, batch: Batch) -> bool:
        """Whether all lines are answered; else the batch has ended."""
        running: dict[int, asyncio.Task[None]] = {}
        try:
            while True:
                self.paused = self._conditions.pause(batch.facts.model)
                room = 0 if self.paused else self._conditions.places(batch.facts.model) - len(running)
                if room > 0:
                    for line in await self.table.open_lines(batch.id, running, room):
                        work = self._answer(batch, line)
                        running[line.number] = asyncio.create_task(work, name=f"{batch.id} {line.number}")
                    if not running:
                        return True
                await self._wait(running)
                await self._settle()
                if await self.table.has_ended(batch.id):
                    return False
        finally:
            self.paused = None
            for task in running.values():
                task.cancel()
            await asyncio.gather(*running.values(), return_exceptions=True)

    async def _wait(self, running: dict[int, asyncio.Task[None]]) -> None:
        """For an answer, a change, or the time to look again. Raises what the answer of a line raised."""
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait(
                [changed, *running.values()], timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            changed.cancel()
        for number, task in list(running.items()):
            if task.done():
                del running[number]
                task.result()

    async def _answer(self, batch: Batch, line: OpenLine) -> None:
        reply = await self._call(batch.owner, line.line)
        for number in range(_TRIES):
            if reply.status not in _BUSY:
                break
            await asyncio.sleep(min(_LONGEST_WAIT_S, 2.0**number))
            reply = await self._call(batch.owner, line.line)
        await self.table.answer(batch.id, line.number, reply)


def _model_of(line: Line) -> str | None:
    model = msgspec.json.decode(line.body).get("model")
    return model if isinstance(model, str) and model else None


def _counts(lines: Sequence[EndedLine]) -> Counts:
    replies = [line.reply for line in lines if line.reply is not None]
    return Counts(len(lines), len(replies), sum(reply.status >= 400 for reply in replies))

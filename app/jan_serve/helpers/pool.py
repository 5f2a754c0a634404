"""A pool of helper processes of one kind, which are killed when they exceed their limits."""

from __future__ import annotations

import asyncio
import heapq
import logging
import os
import signal
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final, Generic, TypeVar

from jan_serve.core.caller import client
from jan_serve.errors import Draining, EngineCrashed, ProtocolError, Unavailable, error_from_payload
from jan_serve.helpers.kinds import MAX_FRAME_BYTES, HelperKind, Reply
from jan_serve.ipc.child_pipe import LENGTH, body_length
from jan_serve.supervisor.workers.child_process import (
    ChildProcess,
    StderrReader,
    StderrTail,
    child_environment,
    own_command,
)

_SECONDS_PER_BYTE: Final = 1e-6
_MOST_SECONDS: Final = 2.0
"""A large request counts as one that came later: small ones, which are soon done, pass it for this long at most."""

_Entry = tuple[float, int, asyncio.Future[None]]


class FairSlots:
    """A number of places. Clients that wait get a free one in turn; a new client joins at the end of the ring."""

    def __init__(self, places: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._free = places
        self._clock = clock
        self._numbers = count()
        self._waiting: OrderedDict[str, list[_Entry]] = OrderedDict()
        """Heaps of what waits by client, in the order of their turns."""

    async def take(self, client: str, size: int) -> None:
        """Wait for a place, which `leave` gives back. size: bytes of the request. Cancelling the call gives it up."""
        if self._free:
            self._free -= 1
            return
        rank = self._clock() + min(_MOST_SECONDS, size * _SECONDS_PER_BYTE)
        place = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting.setdefault(client, []), (rank, next(self._numbers), place))
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():  # it had come
                self.leave()
            raise

    def leave(self) -> None:
        while self._waiting:
            client, entries = self._waiting.popitem(last=False)
            _, _, place = heapq.heappop(entries)
            if entries:
                self._waiting[client] = entries  # its next turn comes after those of all others
            if not place.cancelled():
                place.set_result(None)
                return
        self._free += 1


logger = logging.getLogger(__name__)

START_S: Final = 5.0
"""Extra time for the first request of a process, which includes its start. The process counts CPU time from when it has
the request."""

ATTEMPTS: Final = 2
"""How often a request is tried if something other than its limits ends or stops the process."""

GRACE_S: Final = 0.25
"""How long the work of a cancelled call goes on: most of it ends by then, and ending it costs a process."""

_OVER_TIME: Final = -signal.SIGPROF if sys.platform != "win32" else None
"""The return code of a process that used up its CPU time."""

Q = TypeVar("Q")
A = TypeVar("A")


class HelperPool(Generic[Q, A]):
    """Lives on one event loop. Processes start on demand; one that ended, or sent its last reply, is replaced."""

    def __init__(self, kind: HelperKind[Q, A], command: Sequence[str] | None = None) -> None:
        """command: None for jan-serve's own subcommand."""
        self.kind = kind
        self._command = tuple(command or own_command(kind.command))
        self._turns = FairSlots(kind.processes)
        self._idle: list[_Helper] = []
        self._starting = False
        self._tasks: set[asyncio.Task[A]] = set()
        self._starts: set[asyncio.Task[None]] = set()
        self._closed = False

    async def start(self) -> None:
        """Have one process ready, so that the first request does not wait for it. Failing is left to that."""
        if self._idle or self._tasks or self._starting or self._closed:
            return
        self._starting = True
        try:
            helper = await self._spawn()
        except Unavailable as error:
            logger.warning("%s", error.message)
            return
        finally:
            self._starting = False
        if self._closed:
            await helper.end()
        else:
            self._idle.append(helper)

    def start_soon(self) -> None:
        """Start one process beside what the caller does."""
        task = asyncio.create_task(self.start())
        self._starts.add(task)
        task.add_done_callback(self._starts.discard)

    async def rest(self) -> None:
        """End the processes that have no request. The next one starts another."""
        while self._idle:
            await self._idle.pop().end()

    async def ask(self, request: Q) -> A:
        """The result. Clients (`core.caller`) take turns where processes are few. Raises the error of the work;
        EngineCrashed; Unavailable where no process was free, or none was done, in time."""
        if self._closed:
            raise _draining()
        task = asyncio.create_task(self._ask(request))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and self._closed:
                raise _draining() from None
            asyncio.get_running_loop().call_later(GRACE_S, task.cancel)
            raise

    async def close(self) -> None:
        """End all processes; callers that wait for a reply get Draining."""
        self._closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._starts, return_exceptions=True)
        await self.rest()

    def _done(self, task: asyncio.Task[A]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen, even where nobody waits any more

    async def _ask(self, request: Q) -> A:
        data = self.kind.requests.encode(request)
        try:
            async with asyncio.timeout(self.kind.wait_limit_s):
                await self._turns.take(client.get(), len(data))
        except TimeoutError:
            raise self._busy("no process was free") from None
        try:
            reply = await self._answered(data)
        finally:
            self._turns.leave()
        if reply is None or reply.beyond_limits:
            raise self.kind.too_much(request)
        if reply.code is not None:
            raise error_from_payload(reply.code, reply.payload)
        if reply.result is None:
            raise ProtocolError(f"a {self.kind.name} sent no result")
        return reply.result

    async def _answered(self, data: bytes, attempt: int = 1) -> Reply[A] | None:
        """The reply; None if a limit ended the process. Raises EngineCrashed, Unavailable, ProtocolError."""
        await self._drop_dead()
        starts = attempt > 1 or not self._idle
        helper = await self._spawn() if starts else self._idle.pop()
        try:
            return await self._exchange(helper, data, START_S if starts else 0.0)
        except (EngineCrashed, Unavailable):
            logger.warning("%s %s ended: %s", self.kind.name, helper.process.pid, helper.ending)
            if attempt == ATTEMPTS:
                raise
        return await self._answered(data, attempt + 1)

    async def _drop_dead(self) -> None:
        """Close the pipes of idle processes that something ended."""
        dead = [helper for helper in self._idle if helper.process.returncode is not None]
        self._idle = [helper for helper in self._idle if helper not in dead]
        for helper in dead:
            await helper.end()

    async def _exchange(self, helper: _Helper, data: bytes, start_s: float) -> Reply[A] | None:
        """The reply; None if it used up its CPU time. Raises EngineCrashed, Unavailable if something else ended it."""
        reply: Reply[A] | None = None
        try:
            async with asyncio.timeout(self.kind.wall_limit_s + start_s):
                reply = self.kind.replies.decode(await helper.answer(data))
        except TimeoutError:
            if sys.platform == "win32":  # nothing there limits the CPU time
                return None
            raise self._busy(f"no answer was ready in {self.kind.wall_limit_s:.0f} s") from None
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            if reply is None or reply.last or self._closed:
                # A closed pipe is the end of the process: killing it then does not change how it ended.
                await helper.end()
            else:
                self._idle.append(helper)
        if reply is None and helper.process.returncode != _OVER_TIME:
            raise EngineCrashed(f"The {self.kind.name} ended before it answered. Send the request again.")
        return reply

    def _busy(self, reason: str) -> Unavailable:
        return Unavailable(f"The machine is busy: {reason} ({self.kind.name}). Send the request again.")

    async def _spawn(self) -> _Helper:
        try:
            process = await ChildProcess.spawn(self._command, child_environment(os.environ))
        except OSError as error:
            raise Unavailable(f"the {self.kind.name} could not be started: {error.strerror}") from error
        logger.debug("%s %s started", self.kind.name, process.pid)
        return _Helper(process)


class _Helper:
    """A process of the pool, and what it says on stderr."""

    def __init__(self, process: ChildProcess) -> None:
        self.process = process
        self._tail = StderrTail()
        self._stderr = StderrReader(process, self._tail, logger)

    @property
    def ending(self) -> str:
        """How it ended, and the reason that it gave."""
        words = self._tail.last_words()
        return f"{self.process.status}: {words}" if words else self.process.status

    async def answer(self, data: bytes) -> bytes:
        """The body of the reply to a framed request. Raises ConnectionError and IncompleteReadError at its end."""
        process = self.process
        if process.stdin.is_closing():
            # It ended while it was idle. uvloop's write would raise a RuntimeError.
            raise ConnectionResetError
        process.stdin.write(data)
        await process.stdin.drain()
        length = body_length(await process.stdout.readexactly(LENGTH.size), MAX_FRAME_BYTES)
        return await process.stdout.readexactly(length)

    async def end(self) -> None:
        """Returns once it is reaped."""
        self.process.kill()
        await self.process.exited.wait()
        await self._stderr.close()
        self.process.close()


def _draining() -> Draining:
    return Draining("The server is shutting down.")

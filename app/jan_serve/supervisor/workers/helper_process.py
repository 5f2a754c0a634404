"""A pool of helper processes, whose work can be killed when it exceeds its limits. They start on demand.

`ipc.helper` is the child's end. The pool does not know the kind of work.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Final, Generic, TypeVar

from jan_serve.errors import Draining, EngineCrashed, Overloaded, ProtocolError, Unavailable
from jan_serve.ipc.helper import LENGTH, MAX_FRAME_BYTES, HelperReply
from jan_serve.supervisor.workers.child_process import ChildProcess
from jan_serve.supervisor.workers.stderr_tail import StderrReader, StderrTail
from jan_serve.supervisor.workers.worker_process import worker_environment

logger = logging.getLogger(__name__)

PROCESSES: Final = 2
"""One request that runs into its limit does not block all others."""

WAIT_LIMIT_S: Final = 10.0
"""For a free process."""

START_S: Final = 5.0
"""Extra time for the first request of a process, which includes its start. The process counts CPU time from when it has
the request."""

ATTEMPTS: Final = 2
"""How often a request is tried if something other than its limits ends the process."""

_OVER_TIME: Final = -signal.SIGPROF if sys.platform != "win32" else None
"""The return code of a process that used up its CPU time."""


class HelperLimit(Exception):
    """A process ran into a limit with this request, and would again."""


R = TypeVar("R", bound=HelperReply)


def helper_command(subcommand: str) -> tuple[str, ...]:
    """A hidden subcommand of ours. -P: the working directory must not be able to shadow a module."""
    if getattr(sys, "frozen", False):
        return (sys.executable, subcommand)
    return (sys.executable, "-P", "-m", "jan_serve", subcommand)


class HelperPool(Generic[R]):
    """Lives on one event loop. A process that ended, or sent its last reply, is replaced at the next request."""

    def __init__(
        self,
        command: Sequence[str],
        decode: Callable[[bytes], R],
        *,
        name: str,
        wall_limit_s: float,
        wait_limit_s: float = WAIT_LIMIT_S,
        processes: int = PROCESSES,
    ) -> None:
        """name: of a process, in messages. wall_limit_s: of one request, once it has a process.

        The processes limit their own CPU time to less: one that uses up wall_limit_s got too little of a busy machine.
        """
        self._command = tuple(command)
        self._decode = decode
        self._name = name
        self._wall_limit_s = wall_limit_s
        self._places = _Places(processes)
        self._wait_limit_s = wait_limit_s
        self._idle: list[_Helper] = []
        self._starting = False
        self._tasks: set[asyncio.Task[R]] = set()
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
        """As `start`, beside what the caller does."""
        task = asyncio.create_task(self.start())
        self._starts.add(task)
        task.add_done_callback(self._starts.discard)

    async def rest(self) -> None:
        """End the processes that have no request. The next one starts another."""
        while self._idle:
            await self._idle.pop().end()

    async def ask(self, data: bytes) -> R:
        """The reply to a framed request. Cancelling the call ends the process that works on it.

        Raises HelperLimit, EngineCrashed, Unavailable; Overloaded where no process was free, or none was done, in time.
        """
        if self._closed:
            raise _draining()
        task = asyncio.create_task(self._ask(data))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await task
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if self._closed and (caller is None or not caller.cancelling()):
                raise _draining() from None
            raise

    async def close(self) -> None:
        """End all processes; callers that wait for a reply get Draining."""
        self._closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._starts, return_exceptions=True)
        await self.rest()

    async def _ask(self, data: bytes) -> R:
        async with self._place(len(data)):
            for attempt in range(ATTEMPTS):
                starts = attempt > 0 or not self._idle
                helper = await self._spawn() if starts else self._idle.pop()
                limit_s = self._wall_limit_s + (START_S if starts else 0.0)
                reply = await self._exchange(helper, data, limit_s)
                if reply is not None:
                    return reply
                logger.warning("%s %s ended: %s", self._name, helper.process.pid, helper.ending)
        raise EngineCrashed(f"The {self._name} ended before it answered. Send the request again.")

    @asynccontextmanager
    async def _place(self, size: int) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout(self._wait_limit_s):
                await self._places.take(size)
        except TimeoutError:
            raise Overloaded(f"The {self._name} is busy with other requests") from None
        try:
            yield
        finally:
            self._places.leave()

    async def _exchange(self, helper: _Helper, data: bytes, limit_s: float) -> R | None:
        """The reply; None where something other than the request's limits ended the process.

        Raises HelperLimit, Overloaded.
        """
        reply: R | None = None
        try:
            async with asyncio.timeout(limit_s):
                reply = self._decode(await helper.answer(data))
        except TimeoutError:
            if sys.platform == "win32":  # nothing there limits the CPU time
                raise HelperLimit from None
            raise Overloaded(
                f"The {self._name} got no answer ready in {limit_s:.0f} s: the machine is busy"
            ) from None
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            if reply is None or reply.last or self._closed:
                # A closed pipe is the end of the process: killing it then does not change how it ended.
                await helper.end()
            else:
                self._idle.append(helper)
        if reply is None and helper.process.returncode == _OVER_TIME:
            raise HelperLimit
        return reply

    async def _spawn(self) -> _Helper:
        try:
            process = await ChildProcess.spawn(self._command, worker_environment(os.environ))
        except OSError as error:
            raise Unavailable(f"the {self._name} could not be started: {error.strerror}") from error
        logger.debug("%s %s started", self._name, process.pid)
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
        length: int = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))[0]
        if length > MAX_FRAME_BYTES:
            raise ProtocolError(f"a helper process announces {length} bytes")
        return await process.stdout.readexactly(length)

    async def end(self) -> None:
        """Returns once it is reaped."""
        self.process.kill()
        await self.process.exited.wait()
        await self._stderr.close()
        self.process.close()


class _Places:
    """Places for a few at a time. The smallest of those that wait is next: it is most likely to be done soon."""

    def __init__(self, n_places: int) -> None:
        self._free = n_places
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = count()

    async def take(self, size: int) -> None:
        """Wait for a place. Cancelling the call gives it up."""
        if self._free:
            self._free -= 1
            return
        place = asyncio.get_running_loop().create_future()
        entry = (size, next(self._numbers), place)
        heapq.heappush(self._waiting, entry)
        try:
            await place
        except asyncio.CancelledError:
            if entry in self._waiting:
                self._waiting.remove(entry)
                heapq.heapify(self._waiting)
            elif not place.cancelled():  # it had come; else `leave` has passed it over
                self.leave()
            raise

    def leave(self) -> None:
        while self._waiting:
            _, _, place = heapq.heappop(self._waiting)
            if not place.cancelled():
                place.set_result(None)
                return
        self._free += 1


def _draining() -> Draining:
    return Draining("The server is shutting down.")

"""The fake engine in threads of the test's own process, where a test starts none."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, Self, cast

import pytest

from jan_serve.ipc.channel import EVENTS, REQUESTS, BlockingChannel
from jan_serve.ipc.child_pipe import LENGTH
from jan_serve.ipc.messages import WorkerEvent, WorkerRequest
from jan_serve.supervisor.workers.child_process import ChildProcess
from tests.support.engine.fake_engine import FakeEngine

THREAD_ENGINE: Final = ("the fake engine in a thread",)


class _Requests:
    """The child's stdin: frames for the engine's reader."""

    def __init__(self) -> None:
        self.frames: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._closed = False

    def write(self, data: bytes) -> None:
        self.frames.put(data)

    async def drain(self) -> None: ...

    def is_closing(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        self.frames.put(None)


class ThreadChild:
    """As ChildProcess. An engine that is killed goes on as a thread, unheard."""

    def __init__(self) -> None:
        self.stdin, self.stdout, self.stderr = _Requests(), asyncio.StreamReader(), asyncio.StreamReader()
        self.pid = os.getpid()
        self.exited = asyncio.Event()
        self.returncode: int | None = None
        self._loop = asyncio.get_running_loop()
        self._engine = FakeEngine(cast(BlockingChannel, self), -1, self._end)

    @classmethod
    def started(cls) -> Self:
        child = cls()
        for work in (child._engine.read, child._engine.run):
            threading.Thread(target=_until_end, args=(work,), daemon=True, name="fake engine").start()
        return child

    @property
    def status(self) -> str:
        return f"exit status {self.returncode}"

    def kill(self) -> None:
        self.close()
        self._ended(-9)

    kill_group = kill

    def close(self) -> None:
        self.stdin.close()

    # The engine's end of the pipe, for its threads.

    def receive(self) -> WorkerRequest | None:
        frame = self.stdin.frames.get()
        return None if frame is None else REQUESTS.decode(frame[LENGTH.size :])

    def send(self, event: WorkerEvent) -> None:
        self._tell(self._feed, EVENTS.encode(event))

    def _end(self, code: int) -> NoReturn:
        """Both threads end: this one, and the engine's if it waits for a command."""
        self._engine.commands.put(None)
        self._tell(self._ended, code)
        raise SystemExit

    def _tell(self, call: Any, *given: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *given)
        except RuntimeError:  # the test is over, and its loop is closed
            raise SystemExit from None

    def _feed(self, frame: bytes) -> None:
        if self.returncode is None:
            self.stdout.feed_data(frame)

    def _ended(self, code: int) -> None:
        if self.returncode is None:
            self.returncode = code
            self.stdout.feed_eof()
            self.stderr.feed_eof()
            self.exited.set()


def _until_end(work: Callable[[], None]) -> None:
    with contextlib.suppress(SystemExit):
        work()


@contextlib.contextmanager
def thread_engines() -> Generator[None]:
    """In this block the worker command THREAD_ENGINE starts a thread, and others their processes."""
    spawn = ChildProcess.spawn

    async def spawned(
        command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None
    ) -> ChildProcess | ThreadChild:
        if command == THREAD_ENGINE:
            return ThreadChild.started()
        return await spawn(command, environment, folder)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChildProcess, "spawn", spawned)
        yield

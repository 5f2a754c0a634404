"""The engine thread has two queues: commands from the worker's other threads, and steps for the front.

A write to the pipe wakes the front and its client, which often take the writer's core until they are done. The
outbox's thread overlaps that with the next decode; on the engine thread, all decoding threads would wait.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

import msgspec

from jan_serve.engine.embedding.input_pooling import EmbedJob
from jan_serve.engine.scoring.option_job import OptionJob
from jan_serve.engine.sequence import Sequence
from jan_serve.ipc.messages import AbortRequest, ShutdownRequest, Step


class Wake:
    """An image is encoded, or a saved state is read: a step may get somewhere."""


class GrowContext(NamedTuple):
    """Make the context at least so long. grown: its length then, or why it cannot be."""

    n_ctx: int
    grown: Future[int]


Command = list[Sequence] | EmbedJob | OptionJob | AbortRequest | ShutdownRequest | Wake | GrowContext


class CommandQueue(msgspec.Struct):
    """Commands in order. Any thread puts, the engine thread takes."""

    _commands: deque[Command] = msgspec.field(default_factory=deque[Command])
    _ready: threading.Condition = msgspec.field(default_factory=threading.Condition)

    def put(self, command: Command) -> None:
        with self._ready:
            self._commands.append(command)
            self._ready.notify()

    def take(self, *, wait: bool) -> list[Command]:
        """All commands; blocks for the first one if `wait`."""
        if not wait and not self._commands:
            return []
        with self._ready:
            while not self._commands:
                self._ready.wait()
            commands = list(self._commands)
            self._commands.clear()
            return commands


class Outbox:
    """A bounded queue of steps. The engine thread puts, the writer thread runs.

    At most `limit` steps wait: a front that does not read slows the engine down, as a full pipe does.
    """

    def __init__(self, send: Callable[[Step], None], limit: int = 64) -> None:
        self._send = send
        self._steps: queue.SimpleQueue[Step] = queue.SimpleQueue()
        self._room = threading.Semaphore(limit)

    def put(self, step: Step) -> None:
        """Blocks while `limit` other steps wait."""
        self._room.acquire()
        self._steps.put(step)

    def run(self) -> None:
        """Send steps for ever. Raises the errors of `send`."""
        while True:
            self._send(self._steps.get())
            self._room.release()

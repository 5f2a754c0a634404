"""The commands that the worker's other threads give its engine thread."""

from __future__ import annotations

import threading
from collections import deque

import msgspec

from jan_serve.engine.embedding.input_pooling import EmbedJob
from jan_serve.engine.scoring.option_job import OptionJob
from jan_serve.engine.sequence import Sequence
from jan_serve.ipc.messages import AbortRequest, ShutdownRequest


class Wake:
    """An image is encoded, or a saved state is read: a step may get somewhere."""


Command = list[Sequence] | EmbedJob | OptionJob | AbortRequest | ShutdownRequest | Wake


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

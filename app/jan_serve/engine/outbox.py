"""Sends steps to the front from a separate thread.

A write to the pipe wakes the front and its client, which often take the writer's core until they are done. This thread
overlaps that with the next decode; on the engine thread, all decoding threads would wait.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from jan_serve.ipc.messages import Step


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

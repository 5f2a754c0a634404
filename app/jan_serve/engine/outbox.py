"""Steps on their way to the front.

A write to the pipe wakes the front, and the client behind it, which often take the writer's core until they have done
their work. A thread of its own writes, so that this happens beside the next decode, whose threads share what is left,
and not between two decodes, where the other cores wait for this one.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from jan_serve.ipc.messages import Step


class Outbox:
    """Sends steps in order from the thread that `run`s it; the engine thread alone puts them in.

    At most `limit` steps wait: a front that does not read slows the engine down, as a full pipe does.
    """

    def __init__(self, send: Callable[[Step], None], limit: int = 64) -> None:
        self._send = send
        self._steps: queue.SimpleQueue[Step] = queue.SimpleQueue()
        self._room = threading.Semaphore(limit)

    def put(self, step: Step) -> None:
        """Have a step sent. Blocks while `limit` others wait."""
        self._room.acquire()
        self._steps.put(step)

    def run(self) -> None:
        """Send what comes, without end. Raises what `send` raises."""
        while True:
            self._send(self._steps.get())
            self._room.release()

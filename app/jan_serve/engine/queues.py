"""Queues of the engine thread: commands for it, and the turns of clients and of requests for embeddings or scores."""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Callable, Generator, Set
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Final, Generic, NamedTuple, TypeVar

from jan_serve.engine.embedding.input_pooling import EmbedJob
from jan_serve.engine.scoring.options import OptionJob
from jan_serve.engine.sequence import Sequence
from jan_serve.ipc.messages import AbortRequest, ShutdownRequest


class Wake:
    """An image is encoded, or a saved state is read: a step may get somewhere."""


class GrowContext(NamedTuple):
    """Make the context at least so long. grown: its length then, or why it cannot be."""

    n_ctx: int
    grown: Future[int]


Command = list[Sequence] | EmbedJob | OptionJob | AbortRequest | ShutdownRequest | Wake | GrowContext


class CommandQueue(queue.SimpleQueue[Command]):
    """Commands in order. Any thread puts, the engine thread takes."""

    def take(self, *, wait: bool) -> list[Command]:
        """All commands; blocks for the first one if `wait`."""
        commands = [self.get()] if wait else []
        while not self.empty():
            commands.append(self.get())
        return commands


T = TypeVar("T")


class ClientQueue(Generic[T]):
    """Items of one client are taken in order; each client that has any waits for one item of each other client."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[T]] = {}

    def __bool__(self) -> bool:
        return bool(self._queues)

    @property
    def clients(self) -> Set[str]:
        return self._queues.keys()

    def drop(self, is_meant: Callable[[T], bool]) -> None:
        kept = (
            (client, [item for item in items if not is_meant(item)]) for client, items in self._queues.items()
        )
        self._queues = {client: deque(items) for client, items in kept if items}

    def put(self, client: str, item: T) -> None:
        self._queues.setdefault(client, deque()).append(item)

    def take(self) -> T:
        """Remove the next item. Raises StopIteration without any."""
        client = next(iter(self._queues))
        items = self._queues.pop(client)
        item = items.popleft()
        if items:
            self._queues[client] = items  # behind all others
        return item


Job = EmbedJob | OptionJob

LONG_TURN: Final = 8
"""Batches of a turn while only requests of the same client wait. A change may cost what is read of the next input."""


class JobQueue:
    """Clients take turns after an input or a group of them, requests of one client after some batches. Those in the
    background wait for all others."""

    def __init__(self) -> None:
        self._waiting = ClientQueue[Job]()
        self._background = ClientQueue[Job]()
        self._job: Job | None = None
        self._batches = 0
        self._finished = 0

    @property
    def current(self) -> Job | None:
        """The job of the next batch; None without any."""
        if self._job is None and (waiting := self._waiting or self._background):
            self._job = waiting.take()
            self._batches, self._finished = 0, self._job.num_finished
        return self._job

    def add(self, job: Job) -> None:
        (self._background if job.background else self._waiting).put(job.client, job)

    def drop(self, request_id: int) -> None:
        """The request is done, or no longer wanted. Unknown ids are ignored."""
        if self._job is not None and self._job.request_id == request_id:
            self._job = None
        for waiting in (self._waiting, self._background):
            waiting.drop(lambda job: job.request_id == request_id)

    def computed(self) -> None:
        """A batch of the current job, which has more."""
        job = self._job
        if job is None:
            return
        self._batches += 1
        others = self._waiting.clients
        if job.background and not others:
            others = self._background.clients
        batches = 1 if others - {job.client} else LONG_TURN
        if others and self._batches >= batches and job.num_finished > self._finished:
            job.pause()
            self._job = None
            self.add(job)


STREAM_SHARE: Final = 0.7
MIN_TOKENS: Final = 16


class EmbedPacing:
    """Decides when the next batch of embeddings runs, and its size. For the engine thread. A batch takes the time that
    the streams' last step earned it, and MIN_TOKENS at least. The next one runs once the streams have had their share.
    Earlier time of the streams alone does not count."""

    def __init__(
        self, stream_share: float | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """stream_share: of the time while both have work; above 0 and below 1; None: STREAM_SHARE."""
        stream_share = stream_share or STREAM_SHARE
        self._embed_ratio = (1.0 - stream_share) / stream_share
        self._clock = clock
        self._owed_s = 0.0  # to the streams before the next batch
        self._step_s = self._token_s = 0.0

    def room(self, *, has_streams: bool, limit: int) -> int:
        """Max tokens of a batch now; 0: the streams go first. limit: without streams."""
        if not has_streams:
            self._owed_s = 0.0
            return limit
        if self._owed_s > 0:
            return 0
        fitting = int(self._step_s * self._embed_ratio / self._token_s) if self._token_s else 0
        return min(limit, max(MIN_TOKENS, fitting))

    @contextmanager
    def step(self) -> Generator[None]:
        began = self._clock()
        yield
        self._step_s = self._clock() - began
        self._owed_s -= self._step_s

    @contextmanager
    def batch(self, room: int) -> Generator[None]:
        """Times a batch of embeddings of about `room` tokens."""
        began = self._clock()
        yield
        seconds = self._clock() - began
        self._token_s = seconds / room
        self._owed_s = seconds / self._embed_ratio

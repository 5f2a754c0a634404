"""Which request for embeddings or scores computes its next batch. Pure."""

from __future__ import annotations

from typing import Final

from jan_serve.engine.client_turns import ClientTurns
from jan_serve.engine.embedding.input_pooling import EmbedJob
from jan_serve.engine.scoring.option_job import OptionJob

Job = EmbedJob | OptionJob

LONG_TURN: Final = 8
"""Batches of a turn while only requests of the same client wait. A change may cost what is read of the next input."""


class JobTurns:
    """Clients take turns after an input or a group of them, requests of one client after some batches."""

    def __init__(self) -> None:
        self._waiting = ClientTurns[Job]()
        self._job: Job | None = None
        self._batches = 0
        self._finished = 0

    @property
    def current(self) -> Job | None:
        """The job of the next batch; None without any."""
        if self._job is None and self._waiting:
            self._job = self._waiting.take()
            self._batches, self._finished = 0, self._job.num_finished
        return self._job

    def add(self, job: Job) -> None:
        self._waiting.put(job.client, job)

    def drop(self, request_id: int) -> None:
        """The request is done, or no longer wanted. Unknown ids are ignored."""
        if self._job is not None and self._job.request_id == request_id:
            self._job = None
        self._waiting.drop(lambda job: job.request_id == request_id)

    def computed(self) -> None:
        """A batch of the current job, which has more."""
        job = self._job
        if job is None:
            return
        self._batches += 1
        others = self._waiting.clients
        batches = 1 if others - {job.client} else LONG_TURN
        if others and self._batches >= batches and job.num_finished > self._finished:
            job.pause()
            self._job = None
            self.add(job)

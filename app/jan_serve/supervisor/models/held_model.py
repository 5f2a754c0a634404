"""A model held for one request, over the ends of its workers: `generation.ports.EngineClient`.

What a worker leaves unfinished when it ends, the next worker goes on with.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import closing
from typing import TypeVar

from jan_serve.core.models import ModelFacts
from jan_serve.core.trace import current_trace
from jan_serve.errors import EngineCrashed, EngineStalled
from jan_serve.ipc.answer_log import AnswerLog
from jan_serve.ipc.messages import (
    EngineEvent,
    EngineRequest,
    ReadState,
    RequestCompleted,
    StoreState,
)
from jan_serve.ipc.scoring import Query
from jan_serve.supervisor.models.resident_model import ResidentModel
from jan_serve.supervisor.models.tries import RequestTrials, Tries
from jan_serve.supervisor.models.written_answer import WrittenAnswer
from jan_serve.supervisor.workers.engine_client import WorkerEngineClient

logger = logging.getLogger(__name__)

A = TypeVar("A")
_Lost = EngineCrashed | EngineStalled
_LOST = (EngineCrashed, EngineStalled)
_OF_ONE_WORKER = (ReadState, StoreState)


class HeldModel:
    """Methods may run side by side. Each raises as WorkerEngineClient, and as a lease for the next worker."""

    def __init__(
        self,
        resident: ResidentModel,
        adapter: str | None,
        trials: RequestTrials,
        retry: int,
        next_resident: Callable[[], Awaitable[ResidentModel]],
    ) -> None:
        """next_resident: holds the model in its next worker. retry: see Tries."""
        self.resident = resident
        self.adapter = adapter
        self._trials = trials
        self._retry = retry
        self._next_resident = next_resident
        self._renewing = asyncio.Lock()

    @property
    def _client(self) -> WorkerEngineClient:
        assert self.resident.client is not None
        return self.resident.client

    @property
    def name(self) -> str:
        return self._client.name

    @property
    def facts(self) -> ModelFacts:
        return self._client.facts

    def next_id(self) -> int:
        return self._client.next_id()

    async def generate(
        self, request: EngineRequest, log: AnswerLog | None = None
    ) -> AsyncGenerator[EngineEvent]:
        """Yield the request's events up to RequestCompleted. Closing the iterator aborts the request. log: of an
        answer that was begun before, or is to go on later. A state for another server ends with its worker, so those
        requests are not tried again."""
        moves = request.keep_state or request.resume is not None
        written = WrittenAnswer(request)
        for event in log or ():
            written.add(event)
            yield event
            if isinstance(event, RequestCompleted):
                return
        with closing(Tries(self._trials, 0 if moves else self._retry)) as tries:
            while True:
                client = await self._turn(tries)
                try:
                    async with client.opened(written.rest()) as inbox:
                        while not isinstance(event := await inbox.get(), RequestCompleted):
                            if written.add(event):
                                tries.got_on()
                                if log is not None:
                                    log.add(event)
                                yield event
                        if log is not None:
                            log.add(event)
                        yield event
                    return
                except _LOST as error:
                    self._try_again(tries, error)

    async def ask(self, request: Query[A]) -> A:
        """The answer, from whichever worker lives to give it. A state ends with its worker."""
        if type(request) in _OF_ONE_WORKER:
            return await self._client.ask(request)
        with closing(Tries(self._trials, self._retry)) as tries:
            while True:
                client = await self._turn(tries)
                try:
                    answer = await client.ask(request)
                except _LOST as error:
                    self._try_again(tries, error)
                else:
                    tries.got_on()
                    return answer

    def drop_state(self, state: int) -> None:
        self._client.drop_state(state)

    def _try_again(self, tries: Tries, error: _Lost) -> None:
        tries.again(error)
        logger.info("%s: a request goes on in the next worker", self.name)

    async def _turn(self, tries: Tries) -> WorkerEngineClient:
        """The client of a living worker, once the request may run there."""
        while True:
            await tries.turn()
            resident, failure = self.resident, self._client.failure
            if not tries.may_retry or not isinstance(failure, _LOST):
                resident.trial = tries if tries.is_alone else None
                return self._client
            # It ended before this request ran in it, which says nothing of the request.
            await self._renew(resident)

    async def _renew(self, lost: ResidentModel) -> None:
        async with self._renewing:
            if self.resident is lost:
                with current_trace().spends("restart"):
                    self.resident = await self._next_resident()
                lost.release()

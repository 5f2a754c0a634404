"""Answers over deaths of their workers under random interleavings.

Each answer that has begun ends whole, whatever dies when, unless it ends each worker, its client leaves or the server
ends; nobody waits for ever; nothing is left. `INTERLEAVINGS=20000 pytest THIS_FILE` explores more seeds.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, Final

import pytest

from jan_serve.core.events import Timings
from jan_serve.core.request import StopConditions
from jan_serve.errors import EngineCrashed, InsufficientMemory, JanServeError
from jan_serve.ipc.messages import (
    AbortRequest,
    Accepted,
    Chunk,
    EngineRequest,
    RequestCompleted,
    SequenceFinished,
    Step,
    Tokenized,
    TokenizeRequest,
)
from jan_serve.supervisor.limits import ManagerLimits
from jan_serve.supervisor.models import loaded_models
from jan_serve.supervisor.models.held_model import HeldModel
from jan_serve.supervisor.models.model_manager import ModelManager
from jan_serve.supervisor.workers.worker_process import LoadOutcome, WorkerEnd, WorkerState
from tests.support.engine.engines import FakeResolver
from tests.support.engine.fake_client import fake_facts
from tests.support.exploring import Draws, explore

RUNS: Final = int(os.environ.get("INTERLEAVINGS", "300"))
BATCH: Final = 50
ENDS_S: Final = 3600.0
"""Seconds of virtual time: pauses, cool-downs and frozen workers together take minutes."""
FROZEN_S: Final = 30.0
FAILED_LOADS: Final = 3
POISON: Final = "poison"


class World:
    """What a run still has in store. deaths, failures: of workers and of loads."""

    def __init__(self, draws: Draws) -> None:
        self.draws = draws
        self.poisons = draws.choice((0, 0, 0, 1, 2))
        # A third death in a row, without a token between them, ends any request.
        self.deaths = 0 if self.poisons else draws.randint(0, 2)
        self.failures = draws.randint(0, FAILED_LOADS)
        self.worker: Worker | None = None
        self.has_loaded = self.is_ending = False


class Worker:
    """As WorkerProcess: it loads, writes what is left of its answers token by token, freezes and dies."""

    world: World

    def __init__(self, *_: Any, on_change: Any, **__: Any) -> None:
        self.state = WorkerState.STARTING
        self.outcome: LoadOutcome | None = None
        self.end: WorkerEnd | None = None
        self.ending = self.is_frozen = False
        self.pong = None
        self.load_fraction = 0.0
        self.pid = 1
        self._client: Any = None
        self._on_change = on_change
        self._stopped = asyncio.Event()
        self._requested = False
        self._answers: dict[int, asyncio.Task[None]] = {}
        self._life: asyncio.Task[None] | None = None

    async def start(self, load: Any) -> None:
        await self.world.draws.moment()
        self.state = WorkerState.LOADING
        self._life = asyncio.create_task(self._live())

    async def _live(self) -> None:
        world, draws = self.world, self.world.draws
        await draws.moment(3.0)
        if world.has_loaded and world.failures:
            world.failures -= 1
            if draws.random() < 0.5:
                self.outcome = InsufficientMemory("taken by others")
                self._on_change()
                await self._stopped.wait()
        elif not self._stopped.is_set():
            self.state, self.outcome = WorkerState.READY, fake_facts(parallel=4)
            world.has_loaded, world.worker = True, self
            self._on_change()
            await self._stopped.wait()
        self.ending = True
        for answer in self._answers.values():
            answer.cancel()
        self._on_change()
        await draws.moment(0.5)
        self.end = WorkerEnd(requested=self._requested, status="signal SIGKILL")
        self.outcome = self.outcome or self.end
        if self._client is not None:
            self._client.on_end(self.end)
        self.state = WorkerState.EXITED if self._requested else WorkerState.FAILED
        self._on_change()

    def die(self) -> None:
        self._stopped.set()

    async def freeze(self) -> None:
        """Until the watchdog ends it."""
        self.is_frozen = True
        await asyncio.sleep(FROZEN_S)
        self.die()

    def listen(self, client: Any) -> None:
        self._client = client
        if self.end is not None:
            client.on_end(self.end)

    async def send(self, request: Any) -> None:
        await self.world.draws.moment(0.2)
        if self.end is not None:
            raise ConnectionError
        if not self.ending:
            self._answers[request.id] = asyncio.create_task(self._answer(request))

    def send_nowait(self, request: Any) -> None:
        if isinstance(request, AbortRequest) and request.id in self._answers:
            self._answers[request.id].cancel()

    async def responds(self) -> bool:
        await self.world.draws.moment(0.1)
        return not self.ending

    async def stop(self) -> None:
        self._requested = self._requested or self.end is None
        self._stopped.set()
        if self._life is not None:
            await asyncio.shield(self._life)

    async def _answer(self, request: EngineRequest | TokenizeRequest) -> None:
        await self._moment()
        if isinstance(request, TokenizeRequest):
            self._client.on_event(Tokenized(request.id, [1]))
            return
        if request.prompt == (POISON,):
            self.die()
            return
        self._write(Accepted(request.id, 1))
        written = request.written.choices if request.written is not None else ()
        begun = [0 if not written else written[index].num_tokens for index in range(request.n)]
        is_over = [bool(written) and written[index].finished for index in range(request.n)]
        limit = request.stopping.max_tokens or 0
        for index in range(request.n):
            if is_over[index]:
                continue
            for token in range(begun[index], limit):
                await self._moment()
                self._write(Chunk(index, f"{token} ", id=request.id, ids=(token,)))
            if self.world.draws.random() < 0.5:
                await self._moment()  # it may die in the moment of the last token
            self._write(
                SequenceFinished(id=request.id, index=index, reason="length", completion_tokens=limit)
            )
        self._write(
            RequestCompleted(
                id=request.id,
                prompt_tokens=1,
                completion_tokens=limit,
                cached_tokens=0,
                timings=Timings(decode_s=1.0),
            )
        )

    async def _moment(self) -> None:
        await self.world.draws.moment(0.5)
        while self.is_frozen:
            await asyncio.sleep(1.0)

    def _write(self, event: Any) -> None:
        self._client.on_event(Step((event,)))


class Clients:
    """Requests of one model, and how each ended."""

    def __init__(self, manager: ModelManager, world: World) -> None:
        self._manager, self._world = manager, world
        self._draws = world.draws
        self.running: list[asyncio.Task[None]] = []

    async def request(self, prompt: str) -> None:
        is_held = False
        await self._draws.moment(20.0)
        try:
            async with asyncio.timeout(ENDS_S), self._manager.lease(None) as model:
                is_held = True
                if prompt == POISON or self._draws.random() < 0.7:
                    await self._read(model, prompt)
                else:
                    await model.ask(TokenizeRequest(id=model.next_id(), text=prompt))
        except EngineCrashed:
            assert prompt == POISON or self._world.is_ending
        except JanServeError:
            assert not is_held or self._world.is_ending  # a new one may be refused
        else:
            assert prompt != POISON

    async def _read(self, model: HeldModel, prompt: str) -> None:
        tokens, n = self._draws.randint(1, 30), self._draws.choice((1, 1, 3))
        request = EngineRequest(
            cache_salt="",
            id=model.next_id(),
            prompt=(prompt,),
            n=n,
            stopping=StopConditions(max_tokens=tokens),
        )
        texts, finished, accepted, is_over = [""] * n, list[int](), 0, False
        async for event in model.generate(request):
            assert not is_over
            match event:
                case Chunk():
                    texts[event.index] += event.text
                case SequenceFinished():
                    finished.append(event.index)
                case Accepted():
                    accepted += 1
                case _:
                    is_over = isinstance(event, RequestCompleted)
            await self._draws.moment(self._draws.choice((0.0, 0.0, 3.0)))  # a slow reader
        assert texts == ["".join(f"{token} " for token in range(tokens))] * n
        assert (sorted(finished), accepted, is_over) == ([*range(n)], 1, True)

    async def one_leaves(self) -> None:
        await self._draws.moment(60.0)
        self._draws.choice(self.running).cancel()

    async def a_worker_dies(self) -> None:
        await self._draws.moment(60.0)
        if (worker := self._world.worker) is not None:
            await (worker.freeze() if self._draws.random() < 0.2 else self._die_soon(worker))

    async def _die_soon(self, worker: Worker) -> None:
        await self._draws.moment()
        worker.die()

    async def the_server_ends(self) -> None:
        await self._draws.moment(60.0)
        self._world.is_ending = True
        await self._manager.shutdown(self._draws.choice((0.0, 3.0)))


async def scenario(draws: Draws) -> None:
    world = World(draws)
    Worker.world = world
    resolver = FakeResolver(Path())
    manager = ModelManager(resolver, ("fake",), ManagerLimits(), asyncio.get_running_loop().time)
    clients = Clients(manager, world)
    prompts = ["p"] * draws.randint(1, 8) + [POISON] * world.poisons
    clients.running = [asyncio.create_task(clients.request(prompt)) for prompt in prompts]
    disturbing = [asyncio.create_task(clients.a_worker_dies()) for _ in range(world.deaths)]
    if draws.random() < 0.4:
        disturbing.append(asyncio.create_task(clients.one_leaves()))
    if draws.random() < 0.2:
        disturbing.append(asyncio.create_task(clients.the_server_ends()))
    ends = await asyncio.gather(*clients.running, *disturbing, return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException) and not isinstance(end, asyncio.CancelledError):
            raise end
    assert all(not model.leases and not model.waiting for model in manager.snapshot().models)
    await manager.shutdown(0)
    assert len(asyncio.all_tasks()) == 1, asyncio.all_tasks()


@pytest.mark.parametrize("first", range(0, RUNS, BATCH))
def test_answers_end_whole_in_any_order(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded_models, "WorkerProcess", Worker)
    for seed in range(first, first + BATCH):
        explore(scenario, seed, monkeypatch)

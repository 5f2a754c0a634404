"""The manager of models under random interleavings: no lost lease, no double load, no deadlock, every waiter answered.

`INTERLEAVINGS=20000 pytest THIS_FILE` explores more seeds.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, Final

import pytest

from jan_serve.errors import InvalidModel, JanServeError, Unavailable
from jan_serve.ipc.messages import Tokenized, TokenizeRequest
from jan_serve.supervisor.limits import ManagerLimits
from jan_serve.supervisor.models import loaded_models
from jan_serve.supervisor.models.eviction import Retention
from jan_serve.supervisor.models.model_manager import ModelManager
from jan_serve.supervisor.workers.worker_process import LoadOutcome, WorkerEnd, WorkerState
from tests.support.engine.engines import FakeResolver
from tests.support.engine.fake_client import fake_facts
from tests.support.exploring import Draws, explore

RUNS: Final = int(os.environ.get("INTERLEAVINGS", "300"))
BATCH: Final = 50
NAMES: Final = ("a", "b", "c")
MAX_LOADED: Final = 2
ANSWERED_S: Final = 900.0
"""Cool-downs of a minute included, nobody waits longer than this."""


class World:
    """The machine: which workers live, and what must never be."""

    def __init__(self, draws: Draws) -> None:
        self.draws = draws
        self.alive: list[Worker] = []
        self.workers: dict[int, Worker] = {}
        """By the id of their clients."""
        self.forced = False
        """Requests may lose their model: it was unloaded by force, or the server stops."""
        self.requests: set[asyncio.Task[None]] = set()

    def began(self, worker: Worker) -> None:
        self.alive.append(worker)
        names = [each.name for each in self.alive]
        assert len(names) == len(set(names)), f"loaded twice: {names}"
        assert len(names) <= MAX_LOADED, f"too many: {names}"

    def shake(self) -> None:
        """Something has just changed: now and then, a client leaves at about this moment."""
        if self.requests and self.draws.random() < 0.3:
            self._leave_soon(self.draws.choice(sorted(self.requests, key=lambda request: request.get_name())))

    def _leave_soon(self, request: asyncio.Task[None]) -> None:
        if self.draws.random() < 0.6:
            asyncio.get_running_loop().call_soon(self._leave_soon, request)
        else:
            request.cancel()

    def ended(self, worker: Worker) -> None:
        if worker in self.alive:
            self.alive.remove(worker)


class Worker:
    """As WorkerProcess: it loads, crashes and stops at random times."""

    world: World

    def __init__(self, name: str, *_: Any, on_change: Any, **__: Any) -> None:
        self.name = name
        self.state = WorkerState.STARTING
        self.outcome: LoadOutcome | None = None
        self.end: WorkerEnd | None = None
        self.ending = False
        self.pong = None
        self.load_fraction = 0.0
        self.pid = 1
        self.held = 0
        self._client: Any = None
        self._changed = on_change
        self._life: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._requested = False

    def _on_change(self) -> None:
        self._changed()
        self.world.shake()

    async def start(self, load: Any) -> None:
        draws = self.world.draws
        await draws.moment()
        if draws.random() < 0.03:
            raise OSError(24, "no descriptors")
        self.world.began(self)
        self.state = WorkerState.LOADING
        self._life = asyncio.create_task(self._live())

    async def _live(self) -> None:
        draws = self.world.draws
        try:
            async with asyncio.timeout(draws.expovariate(1 / 60)):
                await self._stoppable(draws.uniform(0, 5))
                kind = draws.random()
                if kind < 0.1:
                    self.outcome = InvalidModel("damaged")
                    self._on_change()
                elif kind < 0.9:
                    self.state = WorkerState.READY
                    self.outcome = fake_facts()
                    self._on_change()
                else:
                    return
                await self._stop.wait()
        except TimeoutError:
            pass  # it crashes
        finally:
            self._finish()

    async def _stoppable(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            await self.world.draws.moment()

    def _finish(self) -> None:
        self.ending = True
        self.world.ended(self)
        self.end = WorkerEnd(requested=self._requested, status="exit status 0")
        if self.outcome is None:
            self.outcome = self.end
        self.state = WorkerState.EXITED if self._requested else WorkerState.FAILED
        if self._client is not None:
            self._client.on_end(self.end)
        self._on_change()

    def listen(self, client: Any) -> None:
        self._client = client
        self.world.workers[id(client)] = self
        if self.end is not None:
            client.on_end(self.end)

    async def send(self, request: Any) -> None:
        await self.world.draws.moment(0.2)
        if self.end is not None:
            raise ConnectionError
        self._client.on_event(Tokenized(request.id, []))

    def send_nowait(self, request: Any) -> None:
        pass

    async def responds(self) -> bool:
        await self.world.draws.moment(0.1)
        return not self.ending

    async def stop(self) -> None:
        if self._life is None:
            return
        if self.end is None and self.state is WorkerState.READY and not self.world.forced:
            assert not self.held, f"{self.name} is unloaded under a request"
        if self.end is None:
            self._requested = True
        await self.world.draws.moment(1.0)
        self._stop.set()
        await asyncio.shield(self._life)


class Clients:
    """What people do to a manager."""

    def __init__(self, manager: ModelManager, resolver: FakeResolver, world: World) -> None:
        self._manager, self._resolver, self._world = manager, resolver, world
        self.outcomes: list[str] = []

    async def request(self) -> None:
        """One request, which may leave at any moment. It has a lease, or one error of ours, in time."""
        draws, name = self._world.draws, self._world.draws.choice(NAMES)
        await draws.moment(60.0)
        task = asyncio.current_task()
        assert task is not None
        self._world.requests.add(task)
        try:
            async with asyncio.timeout(ANSWERED_S) as limit, self._manager.lease(name) as client:
                limit.reschedule(None)
                for _ in range(draws.randrange(1, 4)):
                    await client.ask(TokenizeRequest(id=client.next_id(), text=""))
                    await self._hold(self._world.workers[id(client.resident.client)])
        except JanServeError as error:
            self.outcomes.append(error.code)
        else:
            self.outcomes.append("served")
        finally:
            self._world.requests.discard(task)

    async def _hold(self, worker: Worker) -> None:
        worker.held += 1
        try:
            await self._world.draws.moment(4.0)
        finally:
            worker.held -= 1

    async def disturb(self) -> None:
        """Something that is done to a model."""
        draws, name = self._world.draws, self._world.draws.choice(NAMES)
        await draws.moment(60.0)
        try:
            match draws.randrange(5):
                case 0:
                    await self._manager.unload(name)
                case 1:
                    self._world.forced = True
                    await self._manager.unload(name, force=True)
                case 2:
                    self._resolver.change_file(name)
                case 3:
                    async with self._manager.removing(name):
                        assert all(worker.name != name for worker in self._world.alive)
                        await draws.moment(2.0)
                        assert all(worker.name != name for worker in self._world.alive)
                case _:
                    self._manager.snapshot()
        except JanServeError as error:
            self.outcomes.append(error.code)

    async def sleep(self) -> None:
        """The server sleeps for a while."""
        draws = self._world.draws
        await draws.moment(60.0)
        self._world.forced = True
        await self._manager.suspend(Unavailable("asleep"), draws.uniform(0, 5))
        assert not self._world.alive
        await draws.moment(5.0)
        self._manager.resume()


async def scenario(draws: Draws) -> None:
    world = World(draws)
    Worker.world = world
    resolver = FakeResolver(Path(), NAMES)
    for name in NAMES:
        resolver.retentions[name] = Retention(
            pinned=draws.random() < 0.2,
            ttl_s=draws.choice((0.0, 5.0, 600.0)),
            group=draws.choice((None, "g")),
        )
    clock = asyncio.get_running_loop().time
    manager = ModelManager(resolver, ("fake",), ManagerLimits(max_loaded=MAX_LOADED), clock)
    clients = Clients(manager, resolver, world)
    async with asyncio.TaskGroup() as group:
        for number in range(draws.randint(1, 12)):
            group.create_task(clients.request(), name=f"request {number}")
        for _ in range(draws.randint(0, 4)):
            group.create_task(clients.disturb())
        if draws.random() < 0.2:
            group.create_task(clients.sleep())
        if draws.random() < 0.3:
            await draws.moment(60.0)
            world.forced = True
            await manager.shutdown(draws.choice((0.0, 3.0)))
            assert not world.alive
    world.forced = True
    assert not any(worker.held for worker in world.workers.values())
    assert all(not model.leases and not model.waiting for model in manager.snapshot().models)
    await manager.shutdown(0)
    assert not world.alive
    assert len(asyncio.all_tasks()) == 1, asyncio.all_tasks()


@pytest.mark.parametrize("first", range(0, RUNS, BATCH))
def test_the_manager_keeps_its_promises_in_any_order(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded_models, "WorkerProcess", Worker)
    for seed in range(first, first + BATCH):
        explore(scenario, seed, monkeypatch)

"""A worker process under random interleavings: it loads, answers, stalls, crashes, breaks the protocol and is stopped.

No request is lost or answered wrongly, nothing waits for ever, one that works is never killed, and nothing is left. The
process is a `Child`: pipes and an end, without a process. `INTERLEAVINGS=20000 pytest THIS_FILE` explores more seeds.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final, Literal, cast

import pytest

from jan_serve.core.events import Timings
from jan_serve.core.models import ModelFacts
from jan_serve.errors import EngineFailure, InvalidModel, JanServeError
from jan_serve.ipc.channel import EVENTS, REQUESTS
from jan_serve.ipc.messages import (
    AbortRequest,
    Accepted,
    Chunk,
    EngineRequest,
    LoadFailed,
    LoadModel,
    LoadProgress,
    PingRequest,
    Pong,
    RequestCompleted,
    ShutdownRequest,
    Step,
    Tokenized,
    TokenizeRequest,
    WorkerEvent,
    WorkerRequest,
)
from jan_serve.supervisor.limits import WorkerLimits
from jan_serve.supervisor.workers import child_process, worker_process
from jan_serve.supervisor.workers.engine_client import WorkerEngineClient
from jan_serve.supervisor.workers.spare_worker import SpareWorker
from jan_serve.supervisor.workers.worker_process import WorkerProcess, WorkerState
from tests.support.engine.answers import events_of
from tests.support.engine.fake_client import fake_facts
from tests.support.exploring import Draws, explore

RUNS: Final = int(os.environ.get("INTERLEAVINGS", "300"))
BATCH: Final = 50
LIMITS: Final = WorkerLimits()
ANSWERED_S: Final = 120.0
"""An answer of 20 s at most, after which a worker has a minute to be found stalled."""
HOUR_S: Final = 3600.0
PIPE_FRAMES: Final = 4
"""What the pipe takes while its reader does not read."""

NEXT: Final = {
    WorkerState.STARTING: {WorkerState.LOADING},
    WorkerState.LOADING: {WorkerState.READY, WorkerState.STOPPING, WorkerState.FAILED},
    WorkerState.READY: {WorkerState.STOPPING, WorkerState.FAILED},
    WorkerState.STOPPING: {WorkerState.EXITED},
    WorkerState.EXITED: set[WorkerState](),
    WorkerState.FAILED: set[WorkerState](),
}


class Fault(Enum):
    """What a child does wrong, from some moment on."""

    CRASH = auto()
    SILENCE = auto()
    STUCK = auto()
    LOSS = auto()
    GARBAGE = auto()
    UNEXPECTED = auto()
    CLOSED_PIPE = auto()
    HELD_PIPE = auto()


class Pipe:
    """The write end of a pipe: `drain` waits while the reader does not read."""

    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self.arrived = asyncio.Event()
        self.taken = asyncio.Event()
        self.closed = False

    def write(self, data: bytes) -> None:
        self.frames.append(data)
        self.arrived.set()

    async def drain(self) -> None:
        while len(self.frames) > PIPE_FRAMES and not self.closed:
            self.taken.clear()
            await self.taken.wait()
        if self.closed:
            raise ConnectionResetError

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True
        self.arrived.set()
        self.taken.set()

    async def read(self) -> bytes | None:
        while not self.frames:
            if self.closed:
                return None
            self.arrived.clear()
            await self.arrived.wait()
        frame = self.frames.popleft()
        self.taken.set()
        return frame


class World:
    """The machine: its clock, which runs on while it is suspended, and the processes that live."""

    def __init__(self, draws: Draws) -> None:
        self.draws = draws
        self.slept_s = 0.0
        self.children: list[Child] = []

    def clock(self) -> float:
        return asyncio.get_running_loop().time() + self.slept_s

    async def spawn(self, *_: Any) -> Child:
        await self.draws.moment(0.2)
        if self.draws.random() < 0.03:
            raise OSError(24, "no descriptors")
        child = Child(self)
        self.children.append(child)
        return child


class Child:
    """As ChildProcess, with the worker at its other end."""

    def __init__(self, world: World) -> None:
        self.stdin, self.stdout, self.stderr = Pipe(), asyncio.StreamReader(), asyncio.StreamReader()
        self.pid = 1 + len(world.children)
        self.exited = asyncio.Event()
        self.returncode: int | None = None
        self.fault: Fault | None = None
        """What it has done wrong."""
        self.refused = False
        self._draws = world.draws
        self._clock = world.clock
        self._answers: dict[int, asyncio.Task[None]] = {}
        self._code = 0
        self.held = False
        """Something that it has started holds its pipes open."""
        self._phase_since = world.clock()
        self._ready = False
        self._tasks = {asyncio.create_task(self._live())}
        self._exit = asyncio.Event()
        if self._draws.random() < 0.6:
            self._begin(self._err())

    @property
    def status(self) -> str:
        return f"exit status {self.returncode}"

    def kill(self) -> None:
        if self.returncode is None:
            self.kill_group()

    def kill_group(self) -> None:
        self.held = False
        self._end(-9)
        if self.returncode is not None:
            self._close_outputs()

    def close(self) -> None:
        self.stdin.close()
        self._close_outputs()

    async def over(self) -> None:
        """Everything that it has begun is done."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _begin(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _end(self, code: int) -> None:
        if not self._exit.is_set():
            self._code = code
            self._exit.set()

    def _close_outputs(self) -> None:
        for stream in (self.stdout, self.stderr):
            if not stream.at_eof():
                stream.feed_eof()

    def _send(self, event: WorkerEvent) -> None:
        self._feed(EVENTS.encode(event))

    def _feed(self, data: bytes) -> None:
        if not self._exit.is_set() and self.fault not in (Fault.SILENCE, Fault.CLOSED_PIPE, Fault.GARBAGE):
            self.stdout.feed_data(data)

    async def _live(self) -> None:
        self._tasks.add(cast(asyncio.Task[None], asyncio.current_task()))
        reading = asyncio.create_task(self._read())
        await self._exit.wait()
        for task in (reading, *self._answers.values()):
            task.cancel()
        await self._draws.moment(0.3)
        early = self._draws.random() < 0.5
        if early and not self.held:
            self._close_outputs()
            await self._draws.moment(0.3)
        self.returncode = self._code
        await asyncio.sleep(0)
        self.exited.set()
        await self._draws.moment(0.3)
        if not self.held:
            self._close_outputs()
        await asyncio.gather(reading, return_exceptions=True)
        self._tasks.discard(cast(asyncio.Task[None], asyncio.current_task()))

    async def _err(self) -> None:
        """Something goes wrong at a random time."""
        await asyncio.sleep(self._draws.expovariate(1 / 15))
        if self._exit.is_set():
            return
        match self._draws.choice(list(Fault)):
            case Fault.CRASH:
                self.fault = Fault.CRASH
                self._end(-11)
            case Fault.GARBAGE:
                self._feed(self._draws.choice((b"\xff" * 40, b"\x01\x00\x00\x00\xc1", b"\x05\x00\x00\x00ab")))
                self.fault = Fault.GARBAGE
            case Fault.UNEXPECTED:
                self.fault = Fault.UNEXPECTED
                failed = LoadFailed(code="invalid_model", payload={"message": "late"})
                self._send(self._draws.choice((fake_facts(), failed, LoadProgress(0.5))))
            case Fault.CLOSED_PIPE:
                self.fault = Fault.CLOSED_PIPE
                self.stdout.feed_eof()
            case Fault.HELD_PIPE:
                self.fault, self.held = Fault.HELD_PIPE, True
                self._end(3)
            case fault:
                self.fault, self._phase_since = fault, self._clock()
                for answer in self._answers.values():
                    answer.cancel()

    async def _read(self) -> None:
        while (frame := await self.stdin.read()) is not None:
            await self._draws.moment()
            if self.fault is Fault.SILENCE:
                await self._exit.wait()
            self._take(REQUESTS.decode(frame[4:]))
        self._end(0)

    def _take(self, request: WorkerRequest) -> None:
        match request:
            case LoadModel():
                self._begin(self._load())
            case PingRequest():
                self._begin(self._pong(request.nonce))
            case ShutdownRequest():
                self._begin(self._shut_down())
            case AbortRequest():
                if (answer := self._answers.pop(request.id, None)) is not None:
                    answer.cancel()
            case EngineRequest() | TokenizeRequest() if self.fault not in (Fault.STUCK, Fault.LOSS):
                work = (
                    self._generate(request) if isinstance(request, EngineRequest) else self._tokenize(request)
                )
                self._answers[request.id] = self._begin(work)
            case _:
                pass

    async def _load(self) -> None:
        for part in range(self._draws.randrange(4)):
            await asyncio.sleep(self._draws.uniform(0, 20))
            self._send(LoadProgress(part / 4))
        await self._draws.moment(5.0)
        if self.fault in (Fault.STUCK, Fault.LOSS, Fault.UNEXPECTED):
            return
        if self._draws.random() < 0.1:
            self.refused = True
            self._send(LoadFailed(code="invalid_model", payload={"message": "damaged"}))
            await self._draws.moment(1.0)
            self._end(1)
        else:
            self._send(fake_facts())

    async def _pong(self, nonce: int) -> None:
        await self._draws.moment(0.5)
        phase: Literal["idle", "sample", "decode"] = "decode" if self._answers else "idle"
        since = self._clock()
        if self.fault in (Fault.STUCK, Fault.LOSS):
            phase, since = "sample" if self.fault is Fault.STUCK else "idle", self._phase_since
        self._send(Pong(nonce=nonce, phase=phase, phase_s=self._clock() - since))

    async def _shut_down(self) -> None:
        await self._draws.moment(4.0)
        if self.fault not in (Fault.STUCK, Fault.CLOSED_PIPE):
            self._end(0)

    async def _generate(self, request: EngineRequest) -> None:
        await self._draws.moment(2.0)
        self._send(Step((Accepted(request.id, 1),)))
        for word in words(request.id):
            await self._draws.moment(1.0)
            self._send(Step((Chunk(0, word, id=request.id),)))
        await self._draws.moment()
        self._answers.pop(request.id, None)
        timings = Timings(queue_s=0, prefill_s=0, decode_s=0)
        done = RequestCompleted(
            id=request.id, prompt_tokens=1, completion_tokens=1, cached_tokens=0, timings=timings
        )
        self._send(Step((done,)))

    async def _tokenize(self, request: TokenizeRequest) -> None:
        await self._draws.moment(1.0)
        self._answers.pop(request.id, None)
        self._send(Tokenized(request.id, tokens=[request.id]))


def words(request_id: int) -> list[str]:
    return [f"{request_id}.{number} " for number in range(request_id % 7)]


class Front:
    """A worker, watched, and what people ask of it."""

    def __init__(self, worker: WorkerProcess, world: World) -> None:
        self.worker, self.client = worker, cast(WorkerEngineClient | None, None)
        self.states = [worker.state]
        self.changed = asyncio.Event()
        self._outcome: Any = None
        self._ending_at: float | None = None
        self._world = world

    def note(self) -> None:
        """On each change: only known transitions, and one outcome."""
        worker = self.worker
        if worker.state is not self.states[-1]:
            assert worker.state in NEXT[self.states[-1]], (*self.states, worker.state)
            self.states.append(worker.state)
        if self._outcome is not None:
            assert worker.outcome is self._outcome, f"{self._outcome}, then {worker.outcome}"
        self._outcome = worker.outcome
        if worker.ending and self._ending_at is None:
            self._ending_at = asyncio.get_running_loop().time()
        if self.client is None and isinstance(worker.outcome, ModelFacts):
            self.client = WorkerEngineClient("tiny", worker.outcome, worker, self._world.clock)
            worker.listen(self.client)
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()

    async def ask(self) -> None:
        """One request, which may leave: it gets its own answer, or one error, in time."""
        draws = self._world.draws
        await draws.moment(60.0)
        await self.until(lambda: self.client is not None or self.worker.end is not None)
        if self.client is None:
            return
        leaves = draws.uniform(0, 4) if draws.random() < 0.2 else None
        try:
            async with asyncio.timeout(ANSWERED_S):
                async with asyncio.timeout(leaves):
                    await self._asked(self.client)
        except EngineFailure:
            assert self.worker.end is not None, "an error of the engine, and it lives"
        except TimeoutError:
            assert leaves is not None, "no answer in time"

    async def _asked(self, client: WorkerEngineClient) -> None:
        number = client.next_id()
        if self._world.draws.random() < 0.3:
            answer = await client.ask(
                TokenizeRequest(id=number, text="a", add_special=False, parse_special=False)
            )
            assert answer.tokens == [number]
            return
        request = EngineRequest(cache_salt="", id=number, prompt=("a",))
        text = "".join([event.text async for event in events_of(client, request) if isinstance(event, Chunk)])
        assert text == "".join(words(number))

    async def ping(self) -> None:
        await self._world.draws.moment(60.0)
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(1.1):
            here = await self.worker.responds()
        assert here == (not self.worker.ending)
        if self._ending_at is not None:
            assert asyncio.get_running_loop().time() - max(self._ending_at, began) < 0.1, (
                "the end was not told"
            )

    async def stop(self) -> None:
        await self._world.draws.moment(60.0)
        async with asyncio.timeout(LIMITS.stop_s + 4.0):
            await self.worker.stop()
        assert self.worker.end is not None

    async def suspend(self) -> None:
        """The machine sleeps for an hour."""
        await self._world.draws.moment(60.0)
        self._world.slept_s += HOUR_S


async def scenario(draws: Draws, patch: pytest.MonkeyPatch) -> None:
    world = World(draws)
    for module in (worker_process, child_process):
        patch.setattr(module.ChildProcess, "spawn", world.spawn)
    spare = SpareWorker(kept_s=draws.choice((0.1, 60.0)))
    if draws.random() < 0.5:
        await spare.start(("worker",), huge_pages=LoadModel(path="").settings.huge_pages)
        await draws.moment(0.2)
    worker = WorkerProcess(
        "tiny", ("worker",), LIMITS, on_change=lambda: front.note(), clock=world.clock, spare=spare
    )
    front = Front(worker, world)
    try:
        await worker.start(LoadModel(path="tiny.gguf"))
    except OSError:
        assert worker.pid is None
    else:
        await lived(front, world)
    await spare.close()
    for child in world.children:
        # Only a worker that loads has started something of its own.
        assert child.exited.is_set() and not (child.held and child.pid == worker.pid), "a process is left"
        await child.over()
    assert len(asyncio.all_tasks()) == 1, asyncio.all_tasks()


async def lived(front: Front, world: World) -> None:
    """Its life, to the end."""
    draws, worker = world.draws, front.worker
    child = next(each for each in world.children if each.pid == worker.pid)
    async with asyncio.TaskGroup() as group:
        for _ in range(draws.randint(1, 8)):
            group.create_task(front.ask())
        for act in (front.ping, front.stop, front.suspend):
            for _ in range(draws.randrange(3)):
                group.create_task(act())
    if child.fault is None and not child.refused and worker.end is not None:
        assert worker.end.requested and worker.end.stall is None, f"one that works was ended: {worker.end}"
    await worker.stop()
    assert worker.end is not None and worker.state is front.states[-1]
    assert worker.outcome is not None
    assert isinstance(worker.outcome, JanServeError) == isinstance(worker.outcome, InvalidModel)
    assert front.client is None or front.client.open_requests == 0
    assert not await worker.responds()


@pytest.mark.parametrize("first", range(0, RUNS, BATCH))
def test_a_worker_keeps_its_promises_in_any_order(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(first, first + BATCH):
        explore(lambda draws: scenario(draws, monkeypatch), seed, monkeypatch)

"""One worker process from spawn to reap, also over a suspension."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from jan_serve.core.constraint import CompiledGrammar, Guide
from jan_serve.core.models import ModelFacts
from jan_serve.errors import (
    EngineCrashed,
    EngineFailure,
    EngineStalled,
    GrammarTooComplex,
    JanServeError,
)
from jan_serve.ipc.messages import Chunk, EngineEvent, EngineRequest, LoadModel, ReadState
from jan_serve.supervisor.limits import WorkerLimits
from jan_serve.supervisor.workers.child_process import child_environment, own_command
from jan_serve.supervisor.workers.engine_client import WorkerEngineClient
from jan_serve.supervisor.workers.watchdog import Watchdog
from jan_serve.supervisor.workers.worker_process import (
    WorkerEnd,
    WorkerProcess,
    WorkerState,
)
from tests.support.engine.answers import events_of
from tests.support.engine.engines import FAKE_ENGINE, Gate
from tests.support.processes import alive, until

pytestmark = pytest.mark.anyio

QUICK = WorkerLimits(ping_s=0.02, stop_s=0.2)

SPAWN = "import subprocess, sys; p = subprocess.Popen(['sleep', '600']); print(p.pid, file=sys.stderr, flush=True)"


def printed(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The stderr lines of workers, as logged."""
    logged = (record.getMessage() for record in caplog.records if record.name == "jan_serve.worker")
    return [message.partition("] ")[2] for message in logged]


class Watched:
    """A worker that was started, with the states it went through."""

    def __init__(self, limits: WorkerLimits, command: Sequence[str]) -> None:
        self.states: list[WorkerState] = []
        self.changed = asyncio.Event()
        self.worker = WorkerProcess("tiny", command, limits, on_change=self._note)

    def _note(self) -> None:
        if not self.states or self.states[-1] is not self.worker.state:
            self.states.append(self.worker.state)
        self.changed.set()

    async def outcome(self) -> ModelFacts | JanServeError | WorkerEnd:
        while self.worker.outcome is None:
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 60)
        return self.worker.outcome

    async def end(self) -> WorkerEnd:
        while self.worker.end is None:
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), 60)
        return self.worker.end

    async def client(self) -> WorkerEngineClient:
        facts = await self.outcome()
        assert isinstance(facts, ModelFacts), facts
        client = WorkerEngineClient("tiny", facts, self.worker)
        self.worker.listen(client)
        return client


@contextlib.asynccontextmanager
async def started(
    path: str = "tiny.gguf", limits: WorkerLimits | None = None, command: Sequence[str] = FAKE_ENGINE
) -> AsyncGenerator[Watched]:
    watched = Watched(limits or WorkerLimits(), command)
    await watched.worker.start(LoadModel(path=path))
    try:
        yield watched
    finally:
        await watched.worker.stop()
        assert watched.worker.pid is not None and not alive(watched.worker.pid)


async def generate(client: WorkerEngineClient, prompt: str, grammar: CompiledGrammar | None = None) -> str:
    """The text of one answer."""
    guide = None if grammar is None else Guide(grammar=grammar)
    request = EngineRequest(cache_salt="", id=client.next_id(), prompt=(prompt,), guide=guide)
    events: list[EngineEvent] = [event async for event in events_of(client, request)]
    return "".join(event.text for event in events if isinstance(event, Chunk))


async def test_the_life_of_a_worker_that_is_stopped() -> None:
    async with started() as watched:
        client = await watched.client()
        assert client.facts.architecture == "fake"
        assert await generate(client, "!say hé模😀") == "hé模😀"
        await watched.worker.stop()
        assert watched.states == [
            WorkerState.LOADING,
            WorkerState.READY,
            WorkerState.STOPPING,
            WorkerState.EXITED,
        ]
        assert await watched.end() == WorkerEnd(requested=True, status="exit status 0")


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("crash-on-load-SEGV.gguf", "signal SIGSEGV", "fake: GGML_ASSERT(tensor != NULL) failed"),
        ("crash-on-load-ABRT.gguf", "signal SIGABRT", "fake: GGML_ASSERT(tensor != NULL) failed"),
        ("crash-on-load-KILL.gguf", "signal SIGKILL", "fake: GGML_ASSERT(tensor != NULL) failed"),
        ("exit-on-load.gguf", "exit status 3", "fake: cannot open the library"),
    ],
)
async def test_a_worker_that_ends_while_it_loads(path: str, status: str, words: str) -> None:
    async with started(path) as watched:
        outcome = await watched.outcome()
        assert outcome == WorkerEnd(requested=False, status=status, words=words)
        await until(lambda: watched.states == [WorkerState.LOADING, WorkerState.FAILED])


@pytest.mark.parametrize("name", ["SEGV", "ABRT", "KILL"])
async def test_a_signal_from_outside_ends_a_ready_worker(name: str) -> None:
    async with started() as watched:
        client = await watched.client()
        assert watched.worker.pid is not None
        os.kill(watched.worker.pid, signal.Signals[f"SIG{name}"])
        assert (await watched.end()).status == f"signal SIG{name}"
        with pytest.raises(EngineCrashed, match=f"SIG{name}"):
            await generate(client, "hello")


async def test_a_load_without_progress_is_ended() -> None:
    async with started("hang-on-load.gguf", WorkerLimits(load_s=0.5)) as watched:
        outcome = await watched.outcome()
        assert isinstance(outcome, WorkerEnd)
        assert outcome.stall is not None and outcome.stall.phase == "loading"


async def test_a_load_can_be_stopped(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "slow-load.gguf.gate")
    async with started(str(tmp_path / "slow-load.gguf")) as watched:
        await watched.worker.stop()
        assert await watched.outcome() == WorkerEnd(requested=True, status="exit status 0")
    assert gate.path.exists()


async def test_a_worker_that_does_not_want_to_stop_is_killed() -> None:
    command = (
        sys.executable,
        "-c",
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()",
    )
    async with started(limits=QUICK, command=command) as watched:
        await watched.worker.stop()
        assert (await watched.end()).status == "signal SIGKILL"
        assert watched.states[-1] is WorkerState.EXITED


async def test_what_the_worker_started_is_killed_with_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "jan_serve.worker")
    command = (sys.executable, "-c", f"{SPAWN}; import signal; signal.pause()")
    async with started(limits=QUICK, command=command) as watched:
        await until(lambda: bool(printed(caplog)))
        grandchild = int(printed(caplog)[0])
        assert alive(grandchild)
        await watched.worker.stop()
    await until(lambda: not alive(grandchild))


async def test_a_crash_is_noticed_though_a_grandchild_holds_the_pipe_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", "jan_serve.worker")
    async with started(command=(sys.executable, "-c", f"{SPAWN}; import os; os.abort()")) as watched:
        end = await watched.end()
        assert end.status == "signal SIGABRT"
        grandchild = int(printed(caplog)[0])
        await until(lambda: not alive(grandchild))


async def test_stopping_twice_at_once_and_again_is_fine() -> None:
    async with started() as watched:
        await watched.client()
        await asyncio.gather(watched.worker.stop(), watched.worker.stop())
        await watched.worker.stop()
    assert watched.states.count(WorkerState.STOPPING) == 1


@pytest.mark.parametrize("how", ["bad-utf8", "huge", "garbage"])
async def test_a_worker_that_breaks_the_protocol_is_ended(how: str) -> None:
    async with started() as watched:
        client = await watched.client()
        with pytest.raises(EngineCrashed, match="protocol error"):
            await generate(client, f"!{how}")


@pytest.mark.parametrize(
    ("phase", "limits", "grammar", "error"),
    [
        ("sample", {"sample_s": 0.3}, CompiledGrammar('start: "a"'), GrammarTooComplex),
        ("sample", {"sample_s": 0.3}, None, EngineStalled),
        ("decode", {"decode_s": 0.3}, CompiledGrammar('start: "a"'), EngineStalled),
        ("silent", {"silent_s": 0.5}, CompiledGrammar('start: "a"'), EngineStalled),
    ],
)
async def test_a_worker_without_progress_is_ended(
    phase: str, limits: dict[str, float], grammar: CompiledGrammar | None, error: type[JanServeError]
) -> None:
    async with started(limits=msgspec.structs.replace(QUICK, **limits)) as watched:
        client = await watched.client()
        bystander = asyncio.ensure_future(generate(client, "!stream 100000 1ms"))
        await asyncio.sleep(0)
        with pytest.raises(error):
            await generate(client, f"!stall {phase}", grammar)
        with pytest.raises(EngineStalled):
            await bystander


async def test_a_request_that_the_worker_lost_is_ended() -> None:
    async with started(limits=msgspec.structs.replace(QUICK, other_s=0.3)) as watched:
        client = await watched.client()
        with pytest.raises(EngineStalled, match="idle"):
            await generate(client, "!forget")


async def test_a_worker_whose_watch_fails_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    async with started(limits=QUICK) as watched:
        client = await watched.client()
        monkeypatch.setattr(Watchdog, "stall", fail)
        with pytest.raises(EngineCrashed):
            await generate(client, "!forget")  # nobody would notice


async def test_a_long_stream_is_no_stall() -> None:
    limits = msgspec.structs.replace(QUICK, decode_s=2.0, other_s=2.0, silent_s=2.0)
    async with started(limits=limits) as watched:
        client = await watched.client()
        assert len((await generate(client, "!stream 60 50ms")).split()) == 60


async def test_an_idle_worker_is_not_pinged_and_its_counters_are_those_after_the_last_request() -> None:
    async with started(limits=QUICK) as watched:
        client = await watched.client()
        await generate(client, "!say abc")
        await until(
            lambda: watched.worker.pong is not None and watched.worker.pong.stats.generated_tokens_total == 3
        )
        pong = watched.worker.pong
        assert pong is not None and pong.phase == "idle" and pong.stats.rss_bytes > 0
        for _ in range(3):
            await asyncio.sleep(QUICK.ping_s)
        assert watched.worker.pong is not None and watched.worker.pong.nonce - pong.nonce <= 1


async def test_what_a_worker_prints_is_logged_and_escaped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "jan_serve.worker")
    async with started() as watched:
        client = await watched.client()
        assert await generate(client, r'!stderr "red \u001b[31m alert"') == "ok"
        await until(lambda: printed(caplog) == ["red \\x1b[31m alert"])


def test_a_worker_inherits_no_settings_and_no_keys() -> None:
    inherited = {"PATH": "/bin", "JAN_SERVE_API_KEYS": "secret", "HF_TOKEN": "secret", "LANG": "C"}
    environment = child_environment(inherited)
    assert "secret" not in environment.values()
    assert environment["PATH"] == "/bin"
    assert environment["GGML_NO_BACKTRACE"] == "1"


def test_the_blas_of_a_worker_has_no_threads_of_its_own_unless_its_user_decides() -> None:
    assert child_environment({})["OPENBLAS_NUM_THREADS"] == "1"
    assert child_environment({"OPENBLAS_NUM_THREADS": "4"})["OPENBLAS_NUM_THREADS"] == "4"


@pytest.mark.skipif(sys.platform != "linux", reason="the GNU C library's")
@pytest.mark.parametrize(
    ("inherited", "expected"),
    [
        ({}, "glibc.malloc.hugetlb=1"),
        ({"GLIBC_TUNABLES": ""}, "glibc.malloc.hugetlb=1"),
        ({"GLIBC_TUNABLES": "glibc.pthread.rseq=0"}, "glibc.pthread.rseq=0:glibc.malloc.hugetlb=1"),
        ({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}, "glibc.malloc.hugetlb=0"),
    ],
)
def test_a_worker_asks_for_huge_pages_and_its_user_decides(inherited: dict[str, str], expected: str) -> None:
    assert child_environment(inherited, huge_pages=True)["GLIBC_TUNABLES"] == expected
    assert child_environment(inherited).get("GLIBC_TUNABLES") == inherited.get("GLIBC_TUNABLES")


def test_the_worker_command_cannot_be_shadowed_by_the_working_directory() -> None:
    assert own_command("worker") == (sys.executable, "-P", "-m", "jan_serve", "worker")


def test_the_last_words_of_a_worker_that_ended_well_are_not_shown() -> None:
    assert str(WorkerEnd(requested=True, status="exit status 0", words="~llama_context")) == "exit status 0"
    assert str(WorkerEnd(requested=True, status="signal SIGKILL", words="w")) == "signal SIGKILL: w"
    assert str(WorkerEnd(requested=False, status="exit status 0", words="w")) == "exit status 0: w"


HOUR = 3600.0


class Sleep:
    """A clock that can be put forward, as those of machines that count their sleep."""

    def __init__(self) -> None:
        self._slept_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self._slept_s

    def wake_after(self, seconds: float) -> None:
        """The machine wakes up now."""
        self._slept_s += seconds


@contextlib.asynccontextmanager
async def streaming(
    clock: Callable[[], float], silent_s: float
) -> AsyncGenerator[tuple[WorkerProcess, asyncio.Task[int]]]:
    """A worker and a stream of 100 pieces that has begun; its result is how many came."""
    begun, pieces = asyncio.Event(), 0

    async def read() -> int:
        nonlocal pieces
        request = EngineRequest(cache_salt="", id=client.next_id(), prompt=("!stream 100 10ms",))
        async for event in events_of(client, request):
            # Of chunks that nobody has taken yet one is made; each piece is a word.
            pieces += len(event.text.split()) if isinstance(event, Chunk) else 0
            begun.set()
        return pieces

    limits = WorkerLimits(ping_s=0.02, silent_s=silent_s, stop_s=0.2)
    worker = WorkerProcess("tiny", FAKE_ENGINE, limits, on_change=lambda: None, clock=clock)
    await worker.start(LoadModel(path="tiny.gguf"))
    try:
        await until(lambda: worker.outcome is not None)
        assert isinstance(worker.outcome, ModelFacts)
        client = WorkerEngineClient("tiny", worker.outcome, worker)
        worker.listen(client)
        stream = asyncio.create_task(read())
        await asyncio.wait_for(begun.wait(), 60)
        yield worker, stream
    finally:
        await worker.stop()


@pytest.mark.anyio
@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP")
async def test_a_stream_goes_on_after_a_night() -> None:
    clock = Sleep()
    async with streaming(clock, 20.0) as (worker, stream):
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGSTOP)
        clock.wake_after(12 * HOUR)
        os.kill(worker.pid, signal.SIGCONT)
        assert await asyncio.wait_for(stream, 60) == 100
        assert worker.end is None


@pytest.mark.anyio
@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP")
async def test_a_worker_that_does_not_wake_up_is_ended() -> None:
    clock = Sleep()
    async with streaming(clock, 1.0) as (worker, stream):
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGSTOP)
        clock.wake_after(12 * HOUR)
        with pytest.raises(EngineStalled, match="silent"):
            await asyncio.wait_for(stream, 60)
        assert worker.end is not None


@pytest.mark.anyio
@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP")
async def test_a_worker_that_freezes_in_its_load_is_ended_before_the_limit_of_a_load() -> None:
    limits = WorkerLimits(ping_s=0.02, silent_s=1.0, stop_s=0.2)
    worker = WorkerProcess("tiny", FAKE_ENGINE, limits, on_change=lambda: None)
    await worker.start(LoadModel(path="hang-on-load.gguf"))
    try:
        await until(lambda: worker.pong is not None)
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGSTOP)
        await until(lambda: worker.end is not None)
        assert worker.end is not None and worker.end.stall is not None
        assert worker.end.stall.phase == "silent"
    finally:
        await worker.stop()


@pytest.mark.anyio
@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP")
async def test_a_part_of_a_state_is_not_awaited_from_a_worker_that_is_frozen() -> None:
    clock = Sleep()
    async with streaming(clock, 20.0) as (worker, stream):
        await stream
        watchdog = worker._watchdog  # pyright: ignore[reportPrivateUsage]
        while True:  # until nobody watches: each turn of the event loop has sent its ping, and it is answered
            await until(watchdog.resting)
            nonce = watchdog.pong and watchdog.pong.nonce
            await asyncio.sleep(0.1)
            if watchdog.resting() and nonce == (watchdog.pong and watchdog.pong.nonce):
                break
        assert worker.pid is not None and isinstance(worker.outcome, ModelFacts)
        os.kill(worker.pid, signal.SIGSTOP)
        client = WorkerEngineClient("tiny", worker.outcome, worker)
        worker.listen(client)
        asked = asyncio.create_task(client.ask(ReadState(state=1, offset=0, length=1)))
        async with asyncio.timeout(60):
            while not asked.done():
                clock.wake_after(0.5)  # seconds pass more quickly
                await asyncio.sleep(0.02)
        with pytest.raises(EngineFailure):
            await asked
        assert worker.end is not None

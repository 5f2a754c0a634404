"""HelperPool: which process gets a request, and what becomes of the request when the process ends."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import pytest

from jan_serve.errors import Draining, EngineCrashed, InvalidRequest, Unavailable
from jan_serve.helpers.kinds import HelperKind
from jan_serve.helpers.pool import ATTEMPTS, HelperPool
from tests.integration.helpers.helper_pools import helper_pool
from tests.support.processes import children, until

pytestmark = pytest.mark.anyio

# Replies with its process id. The request is a command.
HELPER = """
import json, os, signal, struct, sys, time
while head := sys.stdin.buffer.read(4):
    command, _, argument = json.loads(sys.stdin.buffer.read(struct.unpack("<I", head)[0])).partition(" ")
    if command == "die":
        os._exit(3)
    if command == "die-once" and not os.path.exists(argument):
        open(argument, "w").close()
        os._exit(3)
    if command == "say":
        print(argument, file=sys.stderr)
        os._exit(3)
    if command == "fill":
        sys.stderr.write("x" * int(argument))
    if command == "over-time":
        os.kill(os.getpid(), signal.SIGPROF)
    if command == "wait":
        time.sleep(600)
    if command == "until":
        while not os.path.exists(argument):
            time.sleep(0.005)
    body = json.dumps({"result": os.getpid(), "last": command == "last"}).encode()
    sys.stdout.buffer.write(struct.pack("<I", len(body)) + body)
    sys.stdout.buffer.flush()
"""


class TooMuch(InvalidRequest):
    """A request beyond the limits."""


KIND: HelperKind[str, int] = HelperKind(
    command="none",
    name="helper",
    request=str,
    result=int,
    too_much=lambda _: TooMuch("too much"),
    codec=msgspec.json,
    cpu_limit_s=1.0,
    memory_limit_bytes=0,
    wall_limit_s=60.0,
)
PROCESSES = KIND.processes


def helpers(
    *, command: tuple[str, ...] = (sys.executable, "-c", HELPER), **limits: float
) -> AbstractAsyncContextManager[HelperPool[str, int]]:
    return helper_pool(KIND, command, **limits)


def ask(pool: HelperPool[str, int], command: str) -> asyncio.Task[int]:
    return asyncio.create_task(pool.ask(command))


async def test_requests_share_a_process_that_was_started_before() -> None:
    async with helpers() as pool:
        await pool.start()
        [started] = children()
        assert {await ask(pool, "x") for _ in range(3)} == {started.pid}


@pytest.mark.parametrize("turns", range(4))
async def test_a_start_beside_the_caller_ends_with_the_pool(turns: int) -> None:
    async with helpers() as pool:
        pool.start_soon()
        pool.start_soon()
        for _ in range(turns):
            await asyncio.sleep(0)
    async with helpers() as pool:
        pool.start_soon()
        assert await ask(pool, "x") in {child.pid for child in children()}


async def test_a_process_is_replaced_after_its_last_reply() -> None:
    async with helpers() as pool:
        last = await ask(pool, "last")
        assert children() == []
        assert await ask(pool, "x") != last


async def test_at_most_a_few_run_and_the_smallest_request_is_next(tmp_path: Path) -> None:
    async with helpers() as pool:
        gates = [tmp_path / str(number) for number in range(PROCESSES)]
        running = [ask(pool, f"until {gate}") for gate in gates]
        await asyncio.sleep(0)
        order: list[str] = []
        waiting = [ask(pool, command) for command in ("large " + "x" * 50, "small")]
        for task, name in zip(waiting, ("large", "small"), strict=True):
            task.add_done_callback(lambda _, name=name: order.append(name))
        await asyncio.sleep(0)
        gates[0].touch()
        await asyncio.gather(*waiting)
        assert order == ["small", "large"]
        assert len(children()) <= PROCESSES
        gates[1].touch()
        await asyncio.gather(*running)


async def test_a_request_is_asked_again_once(tmp_path: Path) -> None:
    async with helpers() as pool:
        await ask(pool, f"die-once {tmp_path / 'mark'}")
        with pytest.raises(EngineCrashed, match="helper"):
            await ask(pool, "die")


@pytest.mark.skipif(sys.platform == "win32", reason="nothing limits CPU time there")
async def test_cpu_time_is_the_request_s_limit_and_the_clock_the_machine_s() -> None:
    async with helpers() as pool:
        with pytest.raises(TooMuch):
            await ask(pool, "over-time")
    async with helpers(wall_limit_s=0.05) as pool:
        await pool.start()
        with pytest.raises(Unavailable, match="busy"):
            await ask(pool, "wait")
        assert children() == []


async def test_waiting_for_a_process_has_a_limit() -> None:
    async with helpers(wait_limit_s=0.05) as pool:
        running = [ask(pool, "wait") for _ in range(PROCESSES)]
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="no process was free"):
            await ask(pool, "x")
        await pool.close()
        assert {type(end) for end in await asyncio.gather(*running, return_exceptions=True)} == {Draining}


async def test_a_cancelled_request_ends_its_process_and_frees_its_place() -> None:
    async with helpers() as pool:
        await pool.start()
        for _ in range(PROCESSES + 1):
            task = ask(pool, "wait")
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await ask(pool, "x")
        # The last one that was killed may not be reaped yet.
        await until(lambda: len(children()) == 1)


async def test_processes_that_are_killed_while_idle_leave_no_pipes() -> None:
    async with helpers() as pool:
        for _ in range(4):
            await asyncio.gather(*(ask(pool, "x") for _ in range(PROCESSES)))
            idle = list(pool._idle)  # pyright: ignore[reportPrivateUsage]
            for helper in idle:
                helper.process.kill()
            async with asyncio.timeout(60):
                await asyncio.gather(*(helper.process.exited.wait() for helper in idle))
            await ask(pool, "x")
            assert len(pool._idle) == 1  # pyright: ignore[reportPrivateUsage]


async def test_the_last_words_of_a_process_are_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with helpers() as pool:
        with pytest.raises(EngineCrashed):
            await ask(pool, "say no such module")
    ends = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(ends) == ATTEMPTS
    assert all(end.endswith(" ended: exit status 3: no such module") for end in ends)


async def test_a_process_that_writes_much_to_stderr_is_not_blocked() -> None:
    async with helpers(wall_limit_s=20.0) as pool:
        await ask(pool, f"fill {1 << 22}")


async def test_a_pool_that_rests_has_no_process_and_a_closed_one_takes_nothing() -> None:
    async with helpers() as pool:
        await ask(pool, "x")
        await pool.rest()
        assert children() == []
        await ask(pool, "x")
        await pool.close()
        with pytest.raises(Draining):
            await ask(pool, "x")


async def test_a_program_that_cannot_start() -> None:
    async with helpers(command=("/nowhere/at/all",)) as pool:
        await pool.start()
        with pytest.raises(Unavailable, match="could not be started"):
            await ask(pool, "x")

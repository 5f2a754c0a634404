"""Answers over the death of their worker: they go on in the next one, and one that ends each worker ends alone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from jan_serve.core.trace import begin_trace
from jan_serve.errors import DeadlineExceeded, EngineCrashed, JanServeError, ModelFailed, Unavailable
from jan_serve.generation.deadline import Deadline
from jan_serve.ipc.messages import (
    Accepted,
    Chunk,
    CountRequest,
    DetokenizeRequest,
    EmbedRequest,
    EngineEvent,
    EngineRequest,
    RequestCompleted,
    TokenizeRequest,
)
from jan_serve.supervisor.crash_backoff import RestartLimits
from jan_serve.supervisor.limits import ManagerLimits
from jan_serve.supervisor.models.held_model import HeldModel
from jan_serve.supervisor.models.model_manager import ModelManager
from tests.integration.supervisor.models.test_crash_recovery import NO_PAUSE, clocked, status
from tests.support.engine.engines import Gate, fake_manager
from tests.support.processes import until

pytestmark = pytest.mark.anyio

AT_ONCE = ManagerLimits(restart=RestartLimits(backoff_s=(0.0,)))
COUNT = 150
COUNTED = "".join(f"{number} " for number in range(COUNT))
WHOLE = f"{COUNTED}done"


class Asked:
    """A request and what came of it so far."""

    def __init__(self, manager: ModelManager, prompt: str, **fields: object) -> None:
        self.events: list[EngineEvent] = []
        self.task = asyncio.create_task(self._read(manager, prompt, fields))

    async def _read(self, manager: ModelManager, prompt: str, fields: dict[str, object]) -> str:
        self.trace = begin_trace()
        async with manager.lease(None) as client:
            request = EngineRequest(cache_salt="", id=client.next_id(), prompt=(prompt,), **fields)  # pyright: ignore[reportArgumentType]
            async for event in client.generate(request):
                self.events.append(event)
        return self.text

    @property
    def text(self) -> str:
        return "".join(e.text for e in self.events if isinstance(e, Chunk) and e.index == 0)


def kill(manager: ModelManager) -> None:
    pid = status(manager).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


async def test_answers_go_on_from_their_last_token_over_several_deaths(tmp_path: Path) -> None:
    async with fake_manager(tmp_path, limits=AT_ONCE) as manager:
        gates = [Gate(tmp_path / f"gate{number}") for number in range(3)]
        answers = [
            Asked(manager, f"!gate {gate.path} {COUNT} 2ms", n=n)
            for gate, n in zip(gates, (1, 1, 3), strict=True)
        ]
        for least in (60, 250):
            await until(lambda least=least: all(len(each.text) > least for each in answers))
            kill(manager)
        for gate in gates:
            await asyncio.to_thread(gate.open)
        assert await asyncio.gather(*(each.task for each in answers)) == [WHOLE] * 3
        assert all(each.trace.phases["restart"] > 0 for each in answers)
        for each in answers:
            assert sum(isinstance(event, Accepted) for event in each.events) == 1
            assert isinstance(each.events[-1], RequestCompleted)
        assert (status(manager).crashes_total, status(manager).retries_total) == (2, 6)
        assert (status(manager).leases, status(manager).waiting) == (0, 0)


@pytest.mark.parametrize("prompt", ["!die", "!die-after 3 ABRT", "!exit 3 gone"])
async def test_a_request_that_ends_each_worker_ends_alone_and_others_go_on(
    tmp_path: Path, prompt: str
) -> None:
    async with fake_manager(tmp_path, limits=AT_ONCE) as manager:
        others = [Asked(manager, f"!stream {COUNT} 2ms") for _ in range(2)]
        await until(lambda: all(len(each.text) > 20 for each in others))
        poison = Asked(manager, prompt)
        with pytest.raises(EngineCrashed, match=r"ended 3 times .* not tried again") as caught:
            await poison.task
        assert "Send the request again" not in caught.value.message
        assert await asyncio.gather(*(each.task for each in others)) == [COUNTED] * 2
        assert status(manager).crashes_total == 3
        # It is not the model's fault: it is not given up.
        assert await Asked(manager, "!say fine").task == "fine"


@pytest.mark.parametrize("retry", [0, 1])
async def test_fewer_tries_by_the_setting(tmp_path: Path, retry: int) -> None:
    limits = ManagerLimits(restart=RestartLimits(backoff_s=(0.0,)), retry=retry)
    async with fake_manager(tmp_path, limits=limits) as manager:
        with pytest.raises(EngineCrashed, match="ended before the answer was complete"):
            await Asked(manager, "!die-after 3").task
        assert status(manager).crashes_total == retry + 1


async def test_what_has_no_text_runs_again(tmp_path: Path) -> None:
    async with fake_manager(tmp_path, limits=AT_ONCE) as manager, manager.lease(None) as client:
        asked: list[asyncio.Task[object]] = [asyncio.create_task(each) for each in _calls(client)]
        before = await asyncio.gather(*asked)
        pid = status(manager).pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        asked = [asyncio.create_task(each) for each in _calls(client)]
        await asyncio.sleep(0)
        os.kill(pid, signal.SIGKILL)
        again = await asyncio.gather(*asked)
        assert [type(each) for each in again] == [type(each) for each in before]
        assert status(manager).loads_total == 2


def _calls(client: HeldModel):
    return (
        client.ask(EmbedRequest(id=client.next_id(), inputs=("a",))),
        client.ask(TokenizeRequest(id=client.next_id(), text="b")),
        client.ask(DetokenizeRequest(id=client.next_id(), tokens=(97,))),
        client.ask(CountRequest(id=client.next_id(), prompt=("c",))),
    )


async def test_a_client_that_leaves_in_the_pause_frees_its_place_and_stops_the_load(tmp_path: Path) -> None:
    limits = ManagerLimits(restart=RestartLimits(backoff_s=(30.0,), patience_s=1.0))
    async with fake_manager(tmp_path, limits=limits) as manager:
        answer = Asked(manager, "!stream 1000000 1ms")
        await until(lambda: len(answer.text) > 20)
        kill(manager)
        await until(lambda: status(manager).waiting == 1)
        answer.task.cancel()
        await asyncio.gather(answer.task, return_exceptions=True)
        assert (status(manager).leases, status(manager).waiting) == (0, 0)


async def test_a_deadline_holds_in_the_pause(tmp_path: Path) -> None:
    limits = ManagerLimits(restart=RestartLimits(backoff_s=(30.0,)))
    async with fake_manager(tmp_path, limits=limits) as manager:
        async with manager.lease(None) as client:
            request = EngineRequest(cache_salt="", id=client.next_id(), prompt=("!stream 1000000 1ms",))
            events = client.generate(request)
            await anext(events)
            kill(manager)
            deadline = Deadline(0.2)
            with pytest.raises(DeadlineExceeded):
                while True:
                    await deadline.wait(anext(events))
        assert (status(manager).leases, status(manager).waiting) == (0, 0)


async def test_an_answer_waits_for_the_end_of_a_cool_down_that_refuses_new_requests(tmp_path: Path) -> None:
    limits = ManagerLimits(restart=RestartLimits(max_crashes=1))
    async with clocked(tmp_path, ("fake",), limits) as (manager, _, clock):
        gate = Gate(tmp_path / "gate")
        answer = Asked(manager, f"!gate {gate.path} {COUNT} 1ms")
        await until(lambda: len(answer.text) > 20)
        kill(manager)
        await until(lambda: status(manager).waiting == 1)
        with pytest.raises(ModelFailed, match="given up"):
            await Asked(manager, "!say new").task
        clock.now += 60
        assert await Asked(manager, "!say new").task == "new"
        await asyncio.to_thread(gate.open)
        assert await answer.task == WHOLE


@pytest.mark.parametrize(
    ("then", "error"),
    [
        ("KILL load", None),
        ("KILL " * 7, "could not be loaded"),
        ("no-memory " * 6 + "load", None),
        ("no-memory KILL no-memory load", None),
        ("no-memory " * 7, "taken by others"),
    ],
)
async def test_a_load_that_fails_is_tried_again_and_not_for_ever(
    tmp_path: Path, then: str, error: str | None
) -> None:
    limits = ManagerLimits(restart=RestartLimits(backoff_s=(0.0,), max_crashes=10))
    async with dying_answer(tmp_path, then, limits) as (manager, answer, gate):
        new = Asked(manager, "!say new")
        if error is None:
            await asyncio.to_thread(gate.open)
            assert (await answer.task, await new.task) == (WHOLE, "new")
        else:
            for each in (answer, new):
                with pytest.raises(Unavailable, match=error):
                    await each.task


async def test_new_requests_are_refused_while_an_answer_waits_long_for_a_load(tmp_path: Path) -> None:
    limits = ManagerLimits(restart=RestartLimits(backoff_s=(0.0,), patience_s=-1.0))
    async with dying_answer(tmp_path, "no-memory " * 4 + "load", limits) as (manager, answer, gate):
        with pytest.raises(Unavailable, match="taken by others"):
            await Asked(manager, "!say new").task
        await asyncio.to_thread(gate.open)
        assert await answer.task == WHOLE


async def test_who_leaves_in_the_pause_after_a_failed_load_leaves_no_pause(tmp_path: Path) -> None:
    limits = ManagerLimits(restart=RestartLimits(backoff_s=(1e6,), max_crashes=10))
    async with clocked(tmp_path, ("ends-as-told",), limits) as (manager, _, clock):
        (tmp_path / "ends-as-told.gguf.ends").write_text("load no-memory load")
        answer = Asked(manager, "!stream 1000000 1ms")
        await until(lambda: len(answer.text) > 20)
        os.kill(status(manager, "ends-as-told").pid or 0, signal.SIGKILL)
        await until(lambda: status(manager, "ends-as-told").waiting == 1)
        clock.now += 1e6
        with pytest.raises(Unavailable, match="taken by others"):
            await Asked(manager, "!say new").task
        await until(lambda: status(manager, "ends-as-told").state == "restarting")
        answer.task.cancel()
        await asyncio.gather(answer.task, return_exceptions=True)
        assert await Asked(manager, "!say new").task == "new"


@contextlib.asynccontextmanager
async def dying_answer(
    folder: Path, then: str, limits: ManagerLimits
) -> AsyncGenerator[tuple[ModelManager, Asked, Gate]]:
    """An answer whose worker has died, and the gate before its end. then: what becomes of the loads after it."""
    (folder / "ends-as-told.gguf.ends").write_text(f"load {then}")
    async with fake_manager(folder, ("ends-as-told",), limits=limits) as manager:
        gate = Gate(folder / "gate")
        answer = Asked(manager, f"!gate {gate.path} {COUNT} 1ms")
        await until(lambda: len(answer.text) > 20)
        pid = status(manager, "ends-as-told").pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await until(lambda: status(manager, "ends-as-told").pid != pid)
        yield manager, answer, gate


async def test_another_file_under_the_name_does_not_go_on(tmp_path: Path) -> None:
    async with clocked(tmp_path, ("fake",), AT_ONCE) as (manager, resolver, _):
        answer = Asked(manager, "!stream 1000000 1ms")
        await until(lambda: len(answer.text) > 20)
        resolver.change_file("fake")
        kill(manager)
        with pytest.raises(Unavailable, match="changed while it answered"):
            await answer.task


async def test_the_end_of_the_server_ends_an_answer_in_its_pause(tmp_path: Path) -> None:
    limits = ManagerLimits(restart=RestartLimits(backoff_s=(30.0,)))
    async with fake_manager(tmp_path, limits=limits) as manager:
        answer = Asked(manager, "!stream 1000000 1ms")
        await until(lambda: len(answer.text) > 20)
        kill(manager)
        await until(lambda: status(manager).waiting == 1)
        await manager.shutdown(0)
        with pytest.raises(JanServeError, match="shutting down"):
            await answer.task


async def test_a_state_for_another_server_ends_with_its_worker(tmp_path: Path) -> None:
    async with fake_manager(tmp_path, limits=NO_PAUSE) as manager:
        answer = Asked(manager, "!stream 1000000 1ms", keep_state=True)
        await until(lambda: len(answer.text) > 20)
        kill(manager)
        with pytest.raises(EngineCrashed):
            await answer.task

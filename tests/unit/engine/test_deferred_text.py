"""On a device that computes by itself, the text of a step is made while the next one is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jan_serve.core.request import StopConditions
from jan_serve.engine.cache.state_cache import StateCache
from jan_serve.engine.engine import Engine
from jan_serve.engine.llama.context import DECODE_NO_CELLS, DECODE_OK
from jan_serve.engine.sampler import Sampled
from jan_serve.engine.sequence import Sequence
from jan_serve.engine.stats import PhaseClock
from jan_serve.ipc.messages import EngineEvent, EngineRequest, EngineSettings
from tests.support.clock import TurnedClock
from tests.unit.engine.fake_context import FakeContext
from tests.unit.engine.test_engine import prompt_of

SAMPLING_S = 0.1
PLAIN = ["launch", "text", "send", "synchronise", "sample"]


class Device(FakeContext):
    """It computes for `device_s` from the launch on; waiting for it and Python's work take all of the time.

    log: what was done, in order. It is also the vocabulary, whose texts take `text_s`, and all sequences' sampler.
    """

    eog_ids = ()
    draws = 0
    is_complete = False

    def __init__(self, device_s: float = 1.0, text_s: float = 0.3) -> None:
        super().__init__()
        self.model.vocab = self
        self.abort_flag: Any = self
        self.clock = TurnedClock()
        self.log: list[str] = []
        self._device_s, self._text_s = device_s, text_s

    def decode(self, batch: Any, meanwhile: Callable[[], None] | None = None) -> int:
        self.log.append("launch")
        ready = self.clock() + self._device_s
        code = super().decode(batch, meanwhile)
        if code == DECODE_OK:
            self.log.append("synchronise")
            self.clock.turn(max(0.0, ready - self.clock()))
        return code

    def set(self) -> None: ...

    def resized(self, _n_ctx: int) -> Device:
        self.log.append("resized")
        return self

    def become(self, _other: Device) -> None: ...

    def is_eog(self, _token: int) -> bool:
        return False

    def piece(self, _token: int, *, special: bool) -> bytes:
        self.log.append("text")
        self.clock.turn(self._text_s)
        return b"a"

    def sample(self, _logits: Any) -> Sampled:
        self.log.append("sample")
        self.clock.turn(SAMPLING_S)
        return Sampled(1)

    def take_forced(self) -> tuple[int, ...]:
        return ()


class Bench:
    """An engine on a device, and what it sends."""

    def __init__(self, device: Device | None = None, *, defers: bool = True) -> None:
        self.device = device or Device()
        self.sent: list[EngineEvent] = []
        context: Any = self.device
        self.engine = Engine(
            context,
            EngineSettings(n_ctx=4096, parallel=2, cache_sequences=4),
            phase=PhaseClock(self.device.clock),
            states=StateCache(1 << 20),
            send=self._send if defers else None,
        )

    def _send(self, events: list[EngineEvent]) -> None:
        self.device.log.append("send")
        self.sent += events

    def stream(self, request_id: int = 1, *, max_new: int = 2000, **stopping: Any) -> Sequence:
        """A stream that has its first two tokens."""
        sequence = prompt_of(request_id, 20, max_new=max_new)
        sampler: Any = self.device
        sequence.sampler = sampler
        sequence.state.request = EngineRequest(
            cache_salt="", id=request_id, prompt=("",), stopping=StopConditions(**stopping)
        )
        self.engine.add([sequence])
        while sequence.num_generated < 2:
            self.step()
        return sequence

    def step(self) -> list[str]:
        """What a step does."""
        self.device.log.clear()
        self.sent += self.engine.step()
        return self.device.log


@pytest.mark.parametrize(("device_s", "text_s"), [(1.0, 0.3), (0.3, 1.0), (0.5, 0.5)])
def test_a_step_takes_the_longer_of_both_and_not_their_sum(device_s: float, text_s: float) -> None:
    for defers, step_s in ((True, max(device_s, text_s)), (False, device_s + text_s)):
        bench = Bench(Device(device_s, text_s), defers=defers)
        bench.stream()
        began = bench.device.clock()
        for _ in range(10):
            bench.step()
        assert bench.device.clock() - began == pytest.approx(10 * (step_s + SAMPLING_S))


def test_text_is_made_and_sent_between_the_launch_and_the_end_of_the_next_step() -> None:
    bench = Bench()
    sequence = bench.stream()
    for _ in range(3):
        before = sequence.num_generated
        assert bench.step() == PLAIN
        assert len(bench.sent) == before
    bench.stream(2)
    assert bench.step() == ["launch", "text", "text", "send", "synchronise", "sample", "sample"]


def test_without_it_each_step_makes_its_own_text() -> None:
    bench = Bench(defers=False)
    bench.stream()
    assert bench.step() == ["launch", "synchronise", "sample", "text"]


def test_the_first_and_the_last_text_wait_for_nothing() -> None:
    bench = Bench()
    first = prompt_of(1, 20, max_new=4)
    sampler: Any = bench.device
    first.sampler = sampler
    bench.engine.add([first])
    at_once = ["launch", "synchronise", "sample", "text"]
    assert [bench.step()[:] for _ in range(4)] == [at_once, at_once[:-1], PLAIN, [*PLAIN, "text"]]
    kinds = [type(event).__name__ for event in bench.sent]
    assert kinds == ["Chunk"] * 4 + ["SequenceFinished", "RequestCompleted"]


@pytest.mark.parametrize("stopping", [{"stop": ("b",)}, {"max_decode_s": 1e9}])
def test_text_that_may_end_its_answer_is_made_at_once(stopping: dict[str, Any]) -> None:
    bench = Bench()
    bench.stream(1, **stopping)
    assert bench.step() == ["launch", "synchronise", "sample", "text"]
    bench.stream(2)
    # Only this text: the other stream's is made with the next step.
    assert bench.step() == ["launch", "text", "send", "synchronise", "sample", "text", "sample"]


def test_text_is_sent_before_a_step_that_reads_a_prompt() -> None:
    bench = Bench()
    bench.stream()
    bench.engine.add([prompt_of(2, 20)])
    assert bench.step()[:3] == ["text", "send", "launch"]


def test_text_is_sent_before_a_finished_sequence_is_copied() -> None:
    bench = Bench()
    bench.stream(1)
    bench.stream(2)
    bench.engine.abort(2)
    assert bench.step()[:3] == ["text", "send", "launch"]
    assert bench.step() == PLAIN
    assert {event.id for event in bench.sent[-2:]} == {1}, "an abort drops the text that waits"


def test_requests_that_wait_for_a_slot_change_nothing() -> None:
    bench = Bench()
    bench.stream(1)
    bench.stream(2)
    bench.engine.add([prompt_of(number, 20) for number in (3, 4)])
    assert bench.step() == ["launch", "text", "text", "send", "synchronise", "sample", "sample"]
    assert bench.step() == ["launch", "text", "text", "send", "synchronise", "sample", "sample"]


def test_text_of_a_stream_that_makes_way_does_not_wait_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    sequence = bench.stream()
    scheduler = bench.engine._scheduler  # pyright: ignore[reportPrivateUsage]
    pauses = iter([sequence])
    # What it made way for cannot begin yet: nothing runs, and the step computes nothing.
    monkeypatch.setattr(scheduler, "next_admission", lambda: None)
    monkeypatch.setattr(scheduler, "next_pause", lambda: next(pauses, None))
    assert bench.step() == ["text", "send"]
    assert len(bench.sent) == sequence.num_generated


@pytest.mark.parametrize("work", ["flush", "save", "grow"])
def test_text_is_sent_before_other_work(work: str) -> None:
    bench = Bench()
    bench.stream()
    bench.device.log.clear()
    if work == "grow":
        bench.engine.grow(8192)
        assert bench.device.log == ["text", "send", "resized"]
    else:
        bench.engine.flush() if work == "flush" else bench.engine.save(1.0)
        assert bench.device.log == ["text", "send"]


def test_a_batch_that_fails_loses_no_text() -> None:
    bench = Bench()
    sequence = bench.stream()
    bench.device.decode_codes = [DECODE_NO_CELLS]
    assert bench.step() == ["launch", "text", "send"]
    [*texts, failed] = bench.sent
    assert [type(event).__name__ for event in (*texts, failed)] == ["Chunk", "Chunk", "Failed"]
    assert sequence.num_generated == 2


def test_what_steps_cost_is_learnt_all_the_same() -> None:
    costs: list[float] = []
    for defers in (True, False):
        bench = Bench(Device(text_s=0.0), defers=defers)
        bench.stream()
        for _ in range(10):
            bench.step()
        costs.append(bench.engine._planner.costs.decode_s(1))  # pyright: ignore[reportPrivateUsage]
    assert costs[0] == pytest.approx(costs[1])

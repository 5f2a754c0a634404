"""Engine: interrupted prefills, when finished sequences are copied, and prompts prefilled beside streams."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np
import pytest

from jan_serve.core.kv_transfer import SequenceState
from jan_serve.engine.cache.state_cache import StateCache
from jan_serve.engine.cache.state_files import StateFiles
from jan_serve.engine.engine import Engine
from jan_serve.engine.llama.context import DECODE_ABORTED, DECODE_NO_CELLS, DECODE_OK, DecodeFailure
from jan_serve.engine.sampler import Sampled
from jan_serve.engine.scheduling.step_costs import TILE
from jan_serve.engine.sequence import Sequence, SequenceStatus
from jan_serve.engine.stats import PhaseClock
from jan_serve.ipc.messages import EngineRequest, EngineSettings, RequestCompleted, ResumeState
from tests.support.clock import TurnedClock
from tests.unit.engine.cache.read_later import ReadLater
from tests.unit.engine.fake_context import FakeContext, sequence_of


class Interruptible(FakeContext):
    """Its decode calls `during`, and stops when its abort flag is set."""

    during: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self) -> None:
        super().__init__()
        self.code = DECODE_OK
        self.model.vocab = Letters()
        self.abort_flag = SimpleNamespace(set=self._set, clear=self._clear)

    def _set(self) -> None:
        self.is_aborted = True

    def _clear(self) -> None:
        self.is_aborted = False

    def decode(self, batch: Any, meanwhile: Any = None) -> int:
        super().decode(batch, meanwhile)
        self.during()
        return DECODE_ABORTED if self.is_aborted else self.code


def engine_of(
    context: Any,
    *,
    clock: Callable[[], float] = time.monotonic,
    parallel: int = 2,
    shelf: Any = None,
    **settings: Any,
) -> Engine:
    resolved = EngineSettings(n_ctx=4096, parallel=parallel, cache_sequences=4, **settings)
    return Engine(context, resolved, phase=PhaseClock(clock), states=StateCache(1 << 20), shelf=shelf)


def prompt_of(token: int, count: int, *, max_new: int = 0) -> Sequence:
    """A request that finishes once its prompt is computed."""
    sequence = sequence_of(np.full(count, token, np.int32))
    sequence.max_new = max_new
    return sequence


@pytest.mark.parametrize(("aborted", "stops"), [(1, True), (2, False)])
def test_a_prefill_is_interrupted_for_its_own_request_only(aborted: int, *, stops: bool) -> None:
    context = Interruptible()
    engine, sequence = engine_of(context), prompt_of(1, 2000)
    context.during = lambda: engine.interrupt_prefill(aborted)
    engine.add([sequence])
    assert engine.step() == []
    assert (engine.stats().computed_tokens_total == 0) == stops
    assert (sequence.num_computed == 0) == stops
    assert context.called("truncate") == ([sequence.seq_id] if stops else [])
    engine.abort(1)
    assert not engine.has_work
    assert not context.is_aborted, "the flag must not stop the next decode"


@pytest.mark.parametrize("code", [DECODE_ABORTED, DECODE_NO_CELLS])
def test_a_sequence_goes_on_after_a_decode_that_stopped(code: int) -> None:
    context = Interruptible()
    engine, first, second = engine_of(context), prompt_of(1, 2000), prompt_of(2, 100)
    engine.add([first])
    engine.step()
    engine.add([second])
    computed = first.num_computed
    assert computed > 0
    context.code = code
    engine.step()
    assert first.status is SequenceStatus.RUNNING
    assert first.num_computed == computed
    context.code = DECODE_OK
    while engine.has_work:
        engine.step()
    assert first.num_computed == 2000


def test_a_finished_sequence_is_copied_after_its_events_are_sent() -> None:
    context = Interruptible()
    engine = engine_of(context, idle_cells=64)
    engine.add([prompt_of(1, 200), prompt_of(2, 2000)])
    assert [type(event).__name__ for event in engine.step()] == ["SequenceFinished", "RequestCompleted"]
    assert context.called("save") == []
    engine.step()
    assert [name for name, _ in context.calls] == ["decode", "save", "remove", "decode"]


class Dropped:
    """A shelf that notes what is dropped."""

    def __init__(self) -> None:
        self.states: list[int] = []

    def drop(self, state: int) -> None:
        self.states.append(state)


@pytest.mark.parametrize("restores", [True, False])
def test_a_state_of_another_server_takes_room_until_it_is_restored(*, restores: bool) -> None:
    context, shelf = Interruptible(), Dropped()
    context.restores = restores
    engine = engine_of(context, parallel=1, shelf=shelf)
    running, waiting = (resumed_of(20 + number) for number in range(2))
    engine.add([running, waiting])
    engine.step()
    assert shelf.states == [20]
    assert (running.resumed is None, waiting.resumed is None) == (True, False)
    engine.abort(21)
    assert shelf.states == [20, 21]


def resumed_of(number: int) -> Sequence:
    """The sequence of a request that continues from a state; both have this number."""
    sequence = sequence_of(np.full(300, 1, np.int32))
    sequence.state.request = EngineRequest(cache_salt="", id=number, prompt=("",), resume=ResumeState(number))
    sequence.resumed = SequenceState(
        tokens=(1,) * 300, seed=0, next_token=1, logits=bytes(16), memory=memoryview(b"cells")
    )
    sequence.sampler = cast(Any, Endless())
    return sequence


class Letters:
    """A vocabulary of one letter and no EOG token."""

    eog_ids = ()

    def is_eog(self, _token: int) -> bool:
        return False

    def piece(self, _token: int, *, special: bool) -> bytes:
        return b"a"


class Endless:
    """A sampler that always picks the same token."""

    draws = 0

    is_complete = False

    def take_forced(self) -> tuple[int, ...]:
        return ()

    def sample(self, _logits: Any) -> Sampled:
        return Sampled(1)


class Timed(FakeContext):
    """Its decodes take 20 ms, 5 ms per token, and per cell read more in few rows than in many."""

    def __init__(self) -> None:
        super().__init__()
        self.model.vocab = Letters()
        self.abort_flag = SimpleNamespace(set=lambda: None, clear=lambda: None)
        self.clock = TurnedClock()
        self._computed = 0

    def decode(self, batch: Any, meanwhile: Any = None) -> int:
        cell_s = 4e-6 if batch.size < TILE else 1e-6
        self.clock.turn(0.02 + batch.size * (0.005 + cell_s * self._computed))
        self._computed += batch.size
        return super().decode(batch, meanwhile)


def stream_of(token: int, count: int) -> Sequence:
    """A prompt that shares no prefix, with an endless answer. It arrived at time 0."""
    sequence = prompt_of(token, count, max_new=2000)
    sampler: Any = Endless()
    sequence.sampler = sampler
    return sequence


def test_short_prompts_that_arrived_together_are_prefilled_before_their_streams_run() -> None:
    """1,600 tokens take eight seconds."""
    context = Timed()
    engine = engine_of(context, parallel=16, clock=context.clock)
    sequences = [stream_of(token, 100) for token in range(16)]
    engine.add(sequences[:1])
    engine.step()
    engine.add(sequences[1:])
    while not all(sequence.num_generated for sequence in sequences):
        engine.step()
    assert max(sequence.num_generated for sequence in sequences) <= 8, "a token after each pause"
    assert engine.stats().stream_pauses_total > 1


def beside_a_stream(length: int, **settings: Any) -> int:
    """Tokens of a stream while a prompt of this length is prefilled."""
    context = Timed()
    engine = engine_of(context, clock=context.clock, **settings)
    stream, prompt = stream_of(0, 100), stream_of(1, length)
    engine.add([stream])
    for _ in range(20):
        engine.step()
    before = stream.num_generated
    prompt.state.arrived = context.clock()
    engine.add([prompt])
    while not prompt.num_generated:
        engine.step()
    return stream.num_generated - before


def test_a_stream_keeps_its_share_of_time_during_a_prefill() -> None:
    shares = (0.3, 0.6, 0.8)
    tokens = [beside_a_stream(1200, stream_share=share) for share in shares]
    for had, share, more, larger in zip(tokens, shares, tokens[1:], shares[1:], strict=False):
        assert more / had == pytest.approx((larger / (1 - larger)) / (share / (1 - share)), rel=0.5)


def test_others_run_while_a_state_is_read_from_disk(tmp_path: Path) -> None:
    """The engine's thread does not block for the disk: it takes other requests until the state is there."""
    files = StateFiles(tmp_path, "key", 1 << 20)
    assert files.write(np.full(200, 1, np.int32), np.zeros(100, np.uint8))
    states, woken = ReadLater(1 << 20, files), Event()
    resolved = EngineSettings(n_ctx=4096, parallel=2, cache_sequences=4)
    context: Any = Interruptible()
    engine = Engine(context, resolved, phase=PhaseClock(), states=states, on_fetched=woken.set)
    saved = prompt_of(1, 300)
    engine.add([saved])
    assert engine.step() == []
    assert engine.has_work and not engine.can_step
    engine.add([prompt_of(2, 100)])
    assert engine.can_step, "a new request ends the wait"
    assert isinstance(engine.step()[-1], RequestCompleted)
    assert engine.step() == [] and not engine.can_step
    assert not woken.is_set()
    states.end_one()
    assert woken.is_set()
    engine.wake()
    while engine.can_step:
        engine.step()
    assert not engine.has_work
    assert (saved.num_cached, saved.num_computed) == (200, 300)


def test_after_a_fatal_decode_all_begin_again_in_their_order_and_after_the_next_one_the_worker_ends() -> None:
    context = Interruptible()
    engine = engine_of(context, parallel=4)
    for number in range(1, 5):
        sequence = prompt_of(number, 512)
        sequence.state.request = EngineRequest(cache_salt="", id=number, prompt=("",))
        engine.add([sequence])
    context.code = -3
    assert engine.step() == []
    context.code = DECODE_OK
    ended: list[int] = []
    while engine.has_work:
        ended += [event.id for event in engine.step() if isinstance(event, RequestCompleted)]
    assert ended == [1, 2, 3, 4]
    engine.add([prompt_of(5, 512)])
    context.code = -3
    with pytest.raises(DecodeFailure, match="code -3"):
        engine.step()


def test_another_clients_chat_is_served_within_a_few_steps_however_many_streams_one_client_has() -> None:
    context: Any = Interruptible()
    engine = engine_of(context, parallel=4)
    streams = [owned(stream_of(number, 100), "a", number) for number in range(40)]
    engine.add(streams)
    for _ in range(40):
        engine.step()
    assert engine.stats().running == 4
    before = [stream.num_generated for stream in streams]
    chat = owned(stream_of(90, 20), "b", 90)
    chat.max_new = 4
    engine.add([chat])
    steps = 0
    while chat.status is not SequenceStatus.FINISHED and steps < 100:
        engine.step()
        steps += 1
    assert steps <= 8
    # The stream that made way goes on where it was.
    paused = streams[3]
    for _ in range(100):
        engine.step()
    assert paused.num_generated > before[3]
    assert paused.num_cached >= 100, "what it computed was in the cache"


def test_prompts_of_another_client_are_read_by_turns() -> None:
    context = Timed()
    engine = engine_of(context, parallel=8, clock=context.clock)
    long = [owned(stream_of(number, 500), "a", number) for number in range(7)]
    engine.add(long)
    for _ in range(3):
        engine.step()
    chat = owned(stream_of(90, 300), "b", 90)
    chat.state.arrived = context.clock()
    engine.add([chat])
    reads: list[bool] = []
    while not chat.num_generated:
        left = chat.num_uncomputed
        engine.step()
        reads.append(chat.num_uncomputed < left)
    assert len(reads) <= 2 * sum(reads) + 1, "every other step that reads is the other client's"


def owned(sequence: Sequence, client: str, request_id: int) -> Sequence:
    """The sequence as one of this client's requests."""
    sequence.state.request = msgspec.structs.replace(sequence.request, id=request_id, client=client)
    return sequence

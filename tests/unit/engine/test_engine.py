"""Engine: a decode can be broken off for its request alone, copies wait for the end of the step, and prompts are read
beside streams by what steps took."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jan_serve.engine.cache.state_cache import StateCache
from jan_serve.engine.engine import Engine
from jan_serve.engine.llama.context import DECODE_ABORTED, DECODE_OK
from jan_serve.engine.phase import PhaseClock
from jan_serve.engine.sampler import Sampled
from jan_serve.engine.scheduling.prefill_costs import TILE
from jan_serve.engine.sequence import Sequence
from tests.support.clock import TurnedClock
from tests.unit.engine.fake_context import FakeContext, sequence_of


class Interruptible(FakeContext):
    """Its decode does what a test wants meanwhile, and stops when it is asked to."""

    during: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self) -> None:
        super().__init__()
        self.model.vocab = Letters()
        self.abort_flag = SimpleNamespace(set=self._ask, clear=self._forget)

    def _ask(self) -> None:
        self.is_asked = True

    def _forget(self) -> None:
        self.is_asked = False

    def decode(self, batch: Any) -> int:
        super().decode(batch)
        self.during()
        return DECODE_ABORTED if self.is_asked else DECODE_OK


def engine_of(context: FakeContext, **settings: Any) -> Engine:
    behind: Any = context
    fields: dict[str, Any] = {"parallel": 2} | settings
    return Engine(
        behind,
        n_ctx=4096,
        cache_sequences=4,
        step_target_s=0.1,
        phase=PhaseClock(),
        states=StateCache(1 << 20),
        **fields,
    )


def asked(token: int, count: int, *, max_new: int = 0) -> Sequence:
    """A prompt that ends once it is computed."""
    sequence = sequence_of(np.full(count, token, np.int32))
    sequence.max_new = max_new
    return sequence


@pytest.mark.parametrize(("aborted", "stops"), [(1, True), (2, False)])
def test_a_prefill_is_broken_off_for_its_own_request(aborted: int, *, stops: bool) -> None:
    context = Interruptible()
    engine, sequence = engine_of(context), asked(1, 2000)
    context.during = lambda: engine.interrupt_prefill(aborted)
    engine.add([sequence])
    assert engine.step() == []
    assert (engine.stats().computed_tokens_total == 0) == stops
    assert (sequence.num_computed == 0) == stops
    assert context.called("truncate") == ([sequence.seq_id] if stops else [])
    engine.abort(1)
    assert not engine.has_work
    assert not context.is_asked, "the next decode is not meant"


def test_what_ended_is_copied_when_its_end_has_been_told() -> None:
    context = Interruptible()
    engine = engine_of(context)
    engine.add([asked(1, 200), asked(2, 2000)])
    assert [type(event).__name__ for event in engine.step()] == ["SequenceFinished", "RequestCompleted"]
    assert context.called("save") == []
    engine.step()
    assert [name for name, _ in context.calls] == ["decode", "save", "remove", "decode"]


class Letters:
    """A vocabulary of one letter, whose texts do not end."""

    eog_ids = ()

    def is_eog(self, _token: int) -> bool:
        return False

    def piece(self, _token: int, *, special: bool) -> bytes:
        return b"a"


class Endless:
    """A sampler that has always the same token."""

    is_complete = False

    def take_forced(self) -> tuple[int, ...]:
        return ()

    def sample(self, _logits: Any) -> Sampled:
        return Sampled(1)


class Timed(FakeContext):
    """Its decodes take 20 ms, 5 ms a token, and for all that is before it more in few rows than in many."""

    def __init__(self) -> None:
        super().__init__()
        self.model.vocab = Letters()
        self.abort_flag = SimpleNamespace(set=lambda: None, clear=lambda: None)
        self.clock = TurnedClock()
        self._computed = 0

    def decode(self, batch: Any) -> int:
        cell_s = 4e-6 if batch.size < TILE else 1e-6
        self.clock.turn(0.02 + batch.size * (0.005 + cell_s * self._computed))
        self._computed += batch.size
        return super().decode(batch)


def stream_of(token: int, count: int) -> Sequence:
    """A prompt that begins like no other one, and an answer that goes on. It arrived before all time."""
    sequence = asked(token, count, max_new=2000)
    sampler: Any = Endless()
    sequence.sampler = sampler
    return sequence


def test_prompts_that_came_together_are_read_before_their_first_streams_go_on() -> None:
    """1,600 tokens are three steps, and eight seconds. The one that came first is ahead of the others."""
    context = Timed()
    engine = engine_of(context, parallel=16, clock=context.clock)
    sequences = [stream_of(token, 100) for token in range(16)]
    engine.add(sequences[:1])
    engine.step()
    engine.add(sequences[1:])
    for _ in range(3):
        engine.step()
    assert all(sequence.num_generated > 0 for sequence in sequences)


def test_what_comes_after_the_first_tokens_is_read_in_pieces() -> None:
    context = Timed()
    engine = engine_of(context, clock=context.clock)
    first, late = stream_of(0, 100), stream_of(1, 700)
    engine.add([first])
    engine.step()
    assert first.state.first_token is not None
    late.state.arrived = first.state.first_token + 0.1
    engine.add([late])
    while not late.num_computed:
        engine.step()
    assert late.num_computed < TILE


def beside_a_stream(length: int, **settings: Any) -> tuple[int, int]:
    """Tokens that a stream gets while a prompt of this length is read, and the pieces of a whole tile among these."""
    context = Timed()
    engine = engine_of(context, clock=context.clock, **settings)
    stream, prompt = stream_of(0, 100), stream_of(1, length)
    engine.add([stream])
    for _ in range(10):
        engine.step()
    before = stream.num_generated
    engine.add([prompt])
    while not prompt.num_generated:
        engine.step()
    return stream.num_generated - before, engine.stats().prefill_tiles_total


def test_a_long_prompt_beside_a_stream_fills_tiles_where_these_are_cheaper() -> None:
    tokens, tiles = beside_a_stream(1200)
    more_tokens, none = beside_a_stream(1200, attention_tiles=False)
    assert tiles > 0
    assert none == 0
    assert tokens < more_tokens, "what is read sooner holds the stream up less"


def test_a_stream_has_its_share_while_a_prompt_is_read() -> None:
    shares = (0.3, 0.6, 0.8)
    tokens = [beside_a_stream(400, stream_share=share)[0] for share in shares]
    for had, share, more, larger in zip(tokens, shares, tokens[1:], shares[1:], strict=False):
        assert more / had == pytest.approx((larger / (1 - larger)) / (share / (1 - share)), rel=0.5)

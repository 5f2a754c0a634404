"""Engine: a decode can be broken off for its request alone, and copies wait for the end of the step."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jan_serve.engine.engine import Engine
from jan_serve.engine.llama.context import DECODE_ABORTED, DECODE_OK
from jan_serve.engine.phase import PhaseClock
from jan_serve.engine.sequence import Sequence
from jan_serve.engine.state_cache import StateCache
from tests.unit.engine.fake_context import FakeContext, sequence_of


class Interruptible(FakeContext):
    """Its decode does what a test wants meanwhile, and stops when it is asked to."""

    during: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self) -> None:
        super().__init__()
        self.model.vocab = SimpleNamespace(eog_ids=())
        self.is_asked = False
        self.abort_flag = SimpleNamespace(set=self._ask, clear=self._forget)

    def _ask(self) -> None:
        self.is_asked = True

    def _forget(self) -> None:
        self.is_asked = False

    def decode(self, batch: Any) -> int:
        super().decode(batch)
        self.during()
        return DECODE_ABORTED if self.is_asked else DECODE_OK


def engine_of(context: FakeContext) -> Engine:
    behind: Any = context
    return Engine(
        behind,
        n_ctx=4096,
        parallel=2,
        cache_sequences=4,
        step_target_s=0.1,
        phase=PhaseClock(),
        states=StateCache(1 << 20),
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

"""The worker's counts of parts of steps, for runs with known steps."""

from __future__ import annotations

import pytest

from jan_serve.ipc.messages import Chunk
from tests.support.worker import Worker, generate

pytestmark = pytest.mark.integration


def test_parts_are_counted_as_often_as_they_happen(llama: Worker) -> None:
    before = llama.stats()
    llama.run_one("some words that nobody asked before", max_tokens=5, ignore_eos=True)
    after = llama.stats()
    steps = after.steps_total - before.steps_total
    prefills = sum(after.prefill_steps.whole.counts) - sum(before.prefill_steps.whole.counts)
    decodes = sum(after.decode_steps.whole.counts) - sum(before.decode_steps.whole.counts)
    turns = [late - early for early, late in zip(before.extra_tokens, after.extra_tokens, strict=True)]
    assert sum(count * (extra + 1) for extra, count in enumerate(turns)) == 5
    assert (prefills, decodes) == (steps - decodes, sum(turns) - 1)
    for kind in (after.prefill_steps, after.decode_steps):
        assert sum(kind.forward.counts) == sum(kind.whole.counts) == sum(kind.sampling.counts)
        assert 0 < kind.forward.seconds < kind.whole.seconds
        assert kind.failed == 0
    assert sum(after.decode_steps.leave.counts) - sum(before.decode_steps.leave.counts) == 1
    # There was no running sequence to join.
    assert after.prefill_steps.join == before.prefill_steps.join


def test_who_comes_beside_a_running_sequence_joins_it(llama: Worker) -> None:
    before = llama.stats().prefill_steps.join
    first = generate("the first one", max_tokens=100, ignore_eos=True)
    llama.send(first)
    while not any(isinstance(event, Chunk) for event in llama.advance()):
        pass
    llama.run(generate("another that comes later", max_tokens=1))
    llama.until(first)
    after = llama.stats().prefill_steps.join
    assert sum(after.counts) - sum(before.counts) == 1
    assert after.seconds > before.seconds

"""Scheduler: who runs next, what a batch holds, who is preempted. No llama.cpp: sequences here cannot sample."""

from __future__ import annotations

import pytest

from jan_serve.engine.cache.prefix_cache import PrefixMatch
from jan_serve.engine.scheduling.scheduler import MIN_SHARED_PREFILL, SCORED_CHUNK
from jan_serve.engine.sequence import Sequence
from jan_serve.engine.tokens import PrefixMark
from jan_serve.ipc.messages import AdapterUse
from tests.unit.engine.scheduling.bench import Bench, make, prompt

# Admission


def test_nobody_passes_one_that_waits_for_room() -> None:
    bench = Bench(capacity=100)
    large, larger, small = make(prompt(0, 60)), make(prompt(1, 60)), make(prompt(2, 5))
    bench.wait(large, larger, small)
    assert bench.admit_all() == [large]
    bench.prefill(large)
    assert bench.admit_all() == []
    bench.scheduler.running.clear()
    bench.cells.clear()
    assert bench.admit_all() == [larger, small]


def test_a_prompt_as_long_as_the_context_is_admitted_when_nothing_runs() -> None:
    bench = Bench(capacity=100)
    bench.keep(prompt(7, 90))
    whole = make(prompt(0, 100))
    bench.wait(whole)
    assert bench.admit_all() == [whole]


def test_room_counts_what_running_prefills_will_take() -> None:
    bench = Bench(capacity=100)
    a, b = make(prompt(0, 60)), make(prompt(1, 60))
    bench.wait(a)
    bench.admit_all()
    bench.compute(a, 10)
    bench.wait(b)
    assert bench.admit_all() == []


def test_shared_cells_of_running_sequences_count_once() -> None:
    bench = Bench(capacity=100)
    a = make([*prompt(0, 80), 1])
    bench.wait(a)
    bench.admit_all()
    bench.prefill(a)
    b = make([*prompt(0, 80), *prompt(1, 10)])
    bench.wait(b)
    assert bench.admit_all() == [b]
    assert b.num_computed == 80
    assert bench.cells.used == 81


def test_a_prefix_without_its_window_gives_way_to_another() -> None:
    bench = Bench()
    lost, kept = bench.keep(prompt(1)), bench.keep([*prompt(1, 8), 1, 2])
    bench.lost.add(lost)
    bench.wait(make([*prompt(1), 3]))
    admission = bench.scheduler.next_admission()
    assert admission is not None and admission.prefix == PrefixMatch(kept, 8)


def test_a_running_sequence_gives_what_it_has_computed() -> None:
    bench = Bench()
    a = make(prompt(0, 40))
    bench.wait(a)
    bench.admit_all()
    bench.prefill(a)
    b = make([*prompt(0, 40), 3])
    bench.wait(b)
    assert bench.admit_all() == [b]
    assert b.num_computed == 40


def test_a_prefix_that_is_being_prefilled_is_waited_for_and_others_pass() -> None:
    bench = Bench()
    a, same, other = make(prompt(0, 40)), make([*prompt(0, 40), 5]), make(prompt(1))
    bench.wait(a, same, other)
    assert bench.admit_all() == [a, other]
    bench.compute(a, 20)
    assert bench.admit_all() == []
    bench.prefill(a)
    assert bench.admit_all() == [same]
    assert same.num_computed == 40


def test_once_enough_is_computed_the_rest_is_not_waited_for() -> None:
    bench = Bench()
    a, same = make(prompt(0, 40)), make(prompt(0, 40))
    bench.wait(a, same)
    assert bench.admit_all() == [a]
    # 39 tokens can be shared: the last one of the prompt is always computed.
    bench.compute(a, 39 - MIN_SHARED_PREFILL)
    assert bench.admit_all() == []
    bench.compute(a, 1)
    assert bench.admit_all() == [same]


def test_a_prefill_that_lost_the_window_of_the_prefix_is_not_waited_for() -> None:
    bench = Bench()
    first = make(prompt(1, 40))
    second = make([*prompt(1, 20), 1, 2])
    bench.wait(first, second)
    assert bench.admit_all() == [first]
    bench.compute(first, 19)
    bench.lost.add(first.seq_id)
    assert bench.admit() is None, "its first 20 tokens are not computed yet"
    bench.compute(first, 1)
    assert bench.admit() is second
    assert second.num_computed == 0


@pytest.mark.parametrize("shared", [MIN_SHARED_PREFILL - 1, MIN_SHARED_PREFILL])
def test_a_short_common_prefix_is_computed_again(shared: int) -> None:
    bench = Bench()
    a = make([*prompt(0, shared), *prompt(1)])
    b = make([*prompt(0, shared), *prompt(2)])
    bench.wait(a, b)
    assert (bench.admit_all() == [a, b]) == (shared < MIN_SHARED_PREFILL)


def test_nothing_is_waited_for_once_its_prefill_was_preempted() -> None:
    bench = Bench()
    a, same = make(prompt(0, 40)), make(prompt(0, 40))
    bench.wait(a, same)
    bench.admit_all()
    bench.scheduler.running.remove(a)
    assert bench.admit_all() == [same]


def test_scored_prompts_use_no_prefix_and_wait_for_none() -> None:
    bench = Bench()
    bench.keep(prompt(0, 20))
    a, scored = make(prompt(0, 40)), make(prompt(0, 40), prompt_logprobs=1)
    bench.wait(a, scored)
    assert bench.admit_all() == [a, scored]
    assert (a.num_computed, scored.num_computed) == (20, 0)


def test_memory_that_cannot_be_cut_waits_for_no_prefill() -> None:
    bench = Bench(whole_only=True)
    a, same = make(prompt(0, 40)), make(prompt(0, 40))
    bench.wait(a, same)
    assert bench.admit_all() == [a, same]


def test_memory_that_cannot_be_cut_is_shared_where_a_prefill_stops() -> None:
    bench = Bench(whole_only=True, capacity=200)
    a, same, other = make(prompt(0, 40)), make(prompt(0, 40)), make([*prompt(0, 30), *prompt(1, 10)])
    a.checkpoints = (20, 39)
    bench.wait(a, same, other)
    assert bench.admit_all() == [a]
    bench.compute(a, a.num_prefill)
    # The first stop is all that they have in common, the second one is worth waiting for.
    assert bench.admit_all() == [other]
    assert (a.num_computed, other.num_computed) == (20, 20)
    bench.compute(a, a.num_prefill)
    assert bench.admit_all() == [same]
    assert (a.num_computed, same.num_computed) == (39, 39)


# Batches


def test_streams_come_first_and_prefill_fills_its_budget() -> None:
    bench = Bench()
    a, stream, b = make(prompt(1, 40)), make(prompt(0)), make(prompt(2, 40))
    bench.wait(a, stream, b)
    bench.admit_all()
    bench.prefill(stream)
    assert bench.plan(max_prefill=50) == [(stream, 1, "last"), (a, 40, "last"), (b, 10, "none")]
    assert bench.plan(max_prefill=30) == [(stream, 1, "last"), (a, 30, "none")]
    assert bench.plan(max_prefill=0) == [(stream, 1, "last")]
    assert bench.plan(max_tokens=21, max_prefill=50) == [(stream, 1, "last"), (a, 20, "none")]
    assert bench.plan(max_prefill=50, each=39) == [(stream, 1, "last"), (a, 39, "none"), (b, 11, "none")]
    assert [item.is_decode for item in bench.scheduler.plan(512, 16, [stream], [(a, 16)])] == [True, False]


def test_more_streams_than_a_batch_holds() -> None:
    bench = Bench()
    streams = [make(prompt(i)) for i in range(3)]
    bench.wait(*streams)
    for stream in bench.admit_all():
        bench.prefill(stream)
    assert bench.plan(max_tokens=2) == [(streams[0], 1, "last"), (streams[1], 1, "last")]


def test_forced_tokens_are_computed_together_and_only_the_last_has_logits() -> None:
    bench = Bench()
    stream = make(prompt(0))
    bench.wait(stream)
    bench.admit_all()
    bench.prefill(stream)
    for token in range(4):
        stream.tokens.append(token)
    assert bench.plan() == [(stream, 5, "last")]
    assert bench.plan(max_tokens=3) == [(stream, 3, "none")]
    bench.compute(stream, 3)
    assert bench.plan() == [(stream, 2, "last")]
    assert bench.scheduler.plan(512, 512, [stream], [])[0].is_decode


def test_scored_prompts_go_in_small_pieces_with_all_their_logits() -> None:
    bench = Bench(capacity=1000)
    scored = make(prompt(0, SCORED_CHUNK + 10), prompt_logprobs=0)
    bench.wait(scored)
    bench.admit_all()
    assert bench.plan() == [(scored, SCORED_CHUNK, "all")]
    assert bench.plan(max_prefill=20) == [(scored, 20, "all")]
    bench.compute(scored, SCORED_CHUNK)
    assert bench.plan() == [(scored, 10, "all")]


# Preemption


A, B = (AdapterUse(0, 1.0),), (AdapterUse(1, 1.0),)


def test_prefixes_are_not_shared_with_other_adapters() -> None:
    bench = Bench()
    mark = PrefixMark.of("a")
    base, other, same = make(range(20)), make(range(20), adapters=A), make(range(20), adapters=A)
    other.mark = same.mark = mark
    bench.wait(base, other, same)
    assert bench.admit() is base
    assert bench.admit() is other, "it does not wait for the prefill of the first one"
    assert bench.admit() is None, "it waits for the prefill under its own adapter"
    other.num_computed = 20
    bench.cells.extend(other.seq_id, 20)
    assert bench.admit() is same
    assert same.num_computed == 19


def test_one_with_much_in_the_cache_may_pass_a_few() -> None:
    bench = Bench(parallel=1, capacity=1000)
    bench.keep(prompt(500, 200))
    first, second = make(prompt(0)), make(prompt(20))
    warm = make([*prompt(500, 200), 1])
    bench.wait(first, second, warm)
    assert bench.admit() is warm
    assert (first.passed, second.passed) == (1, 0)


def test_one_that_does_not_fit_keeps_no_other_from_running() -> None:
    bench = Bench(capacity=400)
    bench.keep(prompt(2, 150))
    running = make(prompt(3, 200))
    bench.wait(running)
    assert bench.admit() is running
    first, cached = make(prompt(1, 100)), make(prompt(2, 300))
    bench.wait(first, cached)
    assert bench.admit() is first
    assert (first.passed, bench.scheduler.passed_total) == (0, 0)
    assert bench.admit() is None


def test_it_passes_only_near_ones_and_none_too_often() -> None:
    def warm() -> Sequence:
        return make([*prompt(500, 200), 1])

    bench = Bench(parallel=1, capacity=1000)
    bench.keep(prompt(500, 200))
    far = [make(prompt(20 * i)) for i in range(4)]
    bench.wait(*far, warm())
    assert bench.admit() is far[0], "the fifth is not looked at"

    bench = Bench(parallel=10, capacity=5000)
    bench.keep(prompt(500, 200))
    first, others = make(prompt(0)), [warm() for _ in range(6)]
    bench.wait(first, *others)
    order = bench.admit_all()
    assert order.index(first) == 4


@pytest.mark.parametrize(("cached", "passes"), [(100, False), (128, True)])
def test_a_little_in_the_cache_changes_nothing(cached: int, passes: bool) -> None:
    bench = Bench(parallel=1, capacity=1000)
    bench.keep(prompt(500, cached))
    first, warm = make(prompt(0)), make([*prompt(500, cached), 1])
    bench.wait(first, warm)
    assert bench.admit() is (warm if passes else first)


def test_what_can_be_brought_back_counts_as_cached() -> None:
    first, warm = make(prompt(0)), make([*prompt(500, 200), 1])

    def num_fetched(sequence: Sequence) -> int:
        return 200 if sequence is warm else 0

    bench = Bench(parallel=1, capacity=1000, num_fetched=num_fetched)
    bench.wait(first, warm)
    admission = bench.scheduler.next_admission()
    assert admission is not None
    assert (admission.sequence, admission.prefix, admission.num_cached) == (warm, None, 200)


def test_both_exceptions_can_be_turned_off() -> None:
    bench = Bench(parallel=2, capacity=1000, share_prefill=False, prefer_cached=False)
    bench.keep(prompt(500, 200))
    cold, warm = make(prompt(0)), make([*prompt(500, 200), 1])
    bench.wait(cold, warm)
    assert bench.admit_all() == [cold, warm]

    bench = Bench(parallel=2, share_prefill=False)
    first, second = make(prompt(0, 30)), make(prompt(0, 30))
    bench.wait(first, second)
    assert bench.admit_all() == [first, second], "neither waits for the other"


def test_the_one_admitted_last_is_preempted_and_never_the_only_one() -> None:
    bench = Bench()
    a, b = make(prompt(0)), make(prompt(1))
    bench.wait(a)
    assert bench.scheduler.victim() is None
    bench.admit_all()
    assert bench.scheduler.victim() is None
    bench.wait(b)
    bench.admit_all()
    assert bench.scheduler.victim() is b

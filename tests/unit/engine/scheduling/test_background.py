"""Sequences in the background wait for all others, and make way for them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from jan_serve.engine.embedding.input_pooling import EmbedJob
from jan_serve.engine.queues import JobQueue
from jan_serve.engine.scheduling.step_planner import ALONE_S, BACKGROUND_S, StepPlanner
from jan_serve.engine.sequence import Sequence
from jan_serve.ipc.messages import EmbedRequest
from tests.unit.engine.scheduling.bench import Bench, make, prompt


def line(number: int, tokens: int = 4) -> Sequence:
    return make(prompt(100 + number, tokens), request_id=100 + number, client="batch", background=True)


def live(number: int, tokens: int = 4) -> Sequence:
    return make(prompt(number, tokens), request_id=number, client="someone")


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_any_other_request_is_admitted_first(order: tuple[int, ...]) -> None:
    bench = Bench(parallel=1)
    lines = [line(0), line(1)]
    waiting = [*lines, live(2)]
    bench.wait(*(waiting[index] for index in order))
    assert bench.admit() is waiting[2]
    assert bench.admit() is None


def test_none_begins_beside_another_request() -> None:
    bench = Bench(parallel=4)
    other = live(0)
    bench.wait(other, line(1))
    assert bench.admit_all() == [other]
    bench.finish(other)
    assert len(bench.admit_all()) == 1


def test_all_that_run_compute_nothing_beside_another_request() -> None:
    bench = Bench(parallel=4)
    lines = [line(0), line(1)]
    bench.wait(*lines)
    assert bench.admit_all() == lines
    assert bench.scheduler.next_turn(0.0) == lines
    other = live(2)
    bench.wait(other)
    assert bench.admit_all() == [other]
    assert bench.scheduler.next_turn(0.0) == [other]
    assert bench.scheduler.next_turn(0.0, lines) == lines, "the other one cannot compute yet"
    bench.finish(other)
    assert bench.scheduler.next_turn(0.0) == lines


@pytest.mark.parametrize(("capacity", "paused"), [(100, 1), (44, 4)])
def test_as_many_make_way_as_another_request_needs(capacity: int, paused: int) -> None:
    bench = Bench(parallel=4, capacity=capacity)
    lines = [line(number, 10) for number in range(4)]
    bench.wait(*lines)
    assert bench.admit_all() == lines
    for each in lines:
        bench.compute(each, 10)
    other = live(9, 40)
    bench.wait(other)
    found = 0
    while bench.admit() is None:
        victim = bench.scheduler.next_pause()
        assert victim is not None and victim is lines[3 - found]
        bench.pause(victim)
        found += 1
    assert found == paused
    assert bench.scheduler.next_pause() is None


def test_those_in_the_background_are_preempted_first() -> None:
    bench = Bench(parallel=4)
    first = line(0)
    bench.wait(first)
    bench.admit_all()
    bench.wait(live(1), live(2))
    bench.admit_all()
    assert bench.scheduler.victim() is first


def test_another_request_does_not_wait_for_a_prompt_that_is_not_computed_meanwhile() -> None:
    bench = Bench(parallel=4)
    first = make(prompt(0, 40), request_id=1, client="batch", background=True)
    bench.wait(first)
    bench.admit_all()
    same = make([*prompt(0, 40), 5], request_id=2)
    bench.wait(same)
    assert bench.admit_all() == [same]


def test_lines_share_the_prompt_that_one_of_them_reads() -> None:
    bench = Bench(parallel=4)
    first, second = (
        make([*prompt(0, 40), number], request_id=number, client="batch", background=True)
        for number in (1, 2)
    )
    bench.wait(first, second)
    assert bench.admit_all() == [first]
    bench.prefill(first)
    assert bench.admit_all() == [second]
    assert second.num_computed == 40


def test_a_step_that_cannot_be_interrupted_is_short() -> None:
    sizes: list[int] = []
    for most_s in (ALONE_S, BACKGROUND_S):
        planner = StepPlanner[Sequence](100_000)
        planner.observe(0, 1_000, 1.0)
        sequence = line(0, 50_000)
        sequence.prefill_end = len(sequence.tokens)
        sizes.append(planner.plan([sequence], now=100.0, most_s=most_s).max_prefill)
    assert sizes[1] * 1e-3 <= 2 * BACKGROUND_S < sizes[0] * 1e-3


def test_embeddings_of_lines_wait_for_all_others() -> None:
    jobs = [
        EmbedJob(EmbedRequest(id=number, inputs=(), client=client, background=background), [[1]] * 2)
        for number, client, background in ((1, "batch", True), (2, "a", False), (3, "b", False))
    ]
    turns = JobQueue()
    for job in jobs:
        turns.add(job)
    found: list[int] = []
    while (job := turns.current) is not None:
        assert isinstance(job, EmbedJob)
        found.append(job.request_id)
        job.vectors.append(np.zeros(2, np.float32))
        if job.is_done:
            turns.drop(job.request_id)
        else:
            turns.computed()
    assert sorted(found[:4]) == [2, 2, 3, 3]
    assert found[4:] == [1, 1]

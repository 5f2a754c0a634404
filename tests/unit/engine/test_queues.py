"""Commands for the engine thread, and the turns of clients and of requests for embeddings."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from jan_serve.engine.embedding.input_pooling import EmbedJob
from jan_serve.engine.queues import LONG_TURN, MIN_TOKENS, STREAM_SHARE, CommandQueue, EmbedPacing, JobQueue
from jan_serve.ipc.messages import AbortRequest, EmbedRequest
from tests.support.clock import TurnedClock

LIMIT_S = 30.0


def test_nothing_is_lost_between_threads() -> None:
    commands, count = CommandQueue(), 500

    def put(first: int) -> None:
        for number in range(count):
            commands.put(AbortRequest(id=first + number))

    threads = [threading.Thread(target=put, args=(start,)) for start in (0, 10_000)]
    for thread in threads:
        thread.start()
    taken: list[int] = []
    while len(taken) < 2 * count:
        taken += [item.id for item in commands.take(wait=True) if isinstance(item, AbortRequest)]
    for thread in threads:
        thread.join(LIMIT_S)
    for start in (0, 10_000):
        assert [number for number in taken if start <= number < start + count] == [
            *range(start, start + count)
        ]


VECTOR = np.zeros(2, np.float32)


def job_of(request_id: int, client: str, inputs: int) -> EmbedJob:
    return EmbedJob(EmbedRequest(id=request_id, inputs=(), client=client), [[1]] * inputs)


def order(turns: JobQueue, *, batches_of_input: int = 1, steps: int = 1000) -> list[int]:
    """The request of each batch, until all are done."""
    found: list[int] = []
    while (job := turns.current) is not None and len(found) < steps:
        found.append(job.request_id)
        assert isinstance(job, EmbedJob)
        job.num_read += 1
        if job.num_read == batches_of_input:
            job.num_read = 0
            job.vectors.append(VECTOR)
        if job.is_done:
            turns.drop(job.request_id)
        else:
            turns.computed()
    return found


def turns_of(*jobs: EmbedJob) -> JobQueue:
    turns = JobQueue()
    for job in jobs:
        turns.add(job)
    return turns


def test_another_client_waits_for_one_input_of_a_long_request() -> None:
    many, one = job_of(1, "a", 50), job_of(2, "b", 1)
    assert order(turns_of(many, job_of(3, "a", 50), one))[:2] == [1, 2]
    many, one = job_of(1, "a", 50), job_of(2, "b", 1)
    assert order(turns_of(many, one), batches_of_input=3).index(2) == 3, "an input is read to its end"


def test_requests_of_one_client_have_longer_turns() -> None:
    assert order(turns_of(job_of(1, "a", 50), job_of(2, "a", 1))).index(2) == LONG_TURN


def test_a_job_that_was_paused_begins_its_unfinished_input_again() -> None:
    first, second = job_of(1, "a", 3), job_of(2, "b", 3)
    turns = turns_of(first, second)
    assert turns.current is first
    first.vectors.append(VECTOR)
    first.num_read, first.total, first.is_open = 5, VECTOR, True
    turns.computed()
    assert turns.current is second
    assert (first.num_read, first.total, first.is_open) == (0, None, False)


def test_a_dropped_job_is_not_computed() -> None:
    turns = turns_of(job_of(1, "a", 5), job_of(2, "a", 5), job_of(3, "b", 1))
    assert turns.current is not None
    turns.drop(1)
    turns.drop(2)
    assert order(turns) == [3]
    assert turns.current is None


LIMIT = 128


def test_embeddings_without_streams_run_in_whole_batches() -> None:
    clock = TurnedClock()
    pacing = EmbedPacing(clock=clock)
    for _ in range(3):
        assert pacing.room(has_streams=False, limit=LIMIT) == LIMIT
        with pacing.batch(LIMIT):
            clock.turn(5.0)


@pytest.mark.parametrize("share", [0.3, STREAM_SHARE, 0.9])
@pytest.mark.parametrize("step_s", [0.02, 0.1, 0.5, 3.0])
@pytest.mark.parametrize("token_s", [0.0005, 0.004, 0.05])
def test_streams_and_embeddings_keep_their_shares(step_s: float, token_s: float, share: float) -> None:
    clock = TurnedClock()
    pacing = EmbedPacing(share, clock)
    of_streams = of_batches = 0.0
    rooms: list[int] = []
    while len(rooms) < 200:
        with pacing.step():
            clock.turn(step_s)
        of_streams += step_s
        room = pacing.room(has_streams=True, limit=LIMIT)
        if room:
            with pacing.batch(room):
                clock.turn(room * token_s)
            of_batches += room * token_s
            rooms.append(room)
    # The last batch is not paid for yet.
    assert of_streams / (of_streams + of_batches) >= share - 0.02
    assert all(MIN_TOKENS <= room <= LIMIT for room in rooms)
    # Streams get more only if a step is longer than their share, or batches are at their limit.
    if rooms[-1] < LIMIT:
        assert of_streams <= 200 * step_s + of_batches * share / (1 - share)


def test_a_long_step_leaves_room_for_a_large_batch() -> None:
    clock = TurnedClock()
    pacing = EmbedPacing(clock=clock)
    with pacing.batch(100):
        clock.turn(1.0)  # 10 ms a token
    for _ in range(2):
        with pacing.step():
            clock.turn(1.4)
    assert pacing.room(has_streams=True, limit=LIMIT) in (59, 60)
    assert pacing.room(has_streams=True, limit=32) == 32


def test_time_of_streams_alone_does_not_count_later() -> None:
    clock = TurnedClock()
    pacing = EmbedPacing(clock=clock)
    for _ in range(100):
        with pacing.step():
            clock.turn(1.0)
    assert pacing.room(has_streams=True, limit=LIMIT)
    with pacing.batch(MIN_TOKENS):
        clock.turn(0.2)
    assert not pacing.room(has_streams=True, limit=LIMIT)


def test_ended_streams_are_owed_no_time() -> None:
    clock = TurnedClock()
    pacing = EmbedPacing(clock=clock)
    with pacing.batch(MIN_TOKENS):
        clock.turn(60.0)
    assert pacing.room(has_streams=True, limit=LIMIT) == 0
    assert pacing.room(has_streams=False, limit=LIMIT) == LIMIT
    assert pacing.room(has_streams=True, limit=LIMIT) == MIN_TOKENS

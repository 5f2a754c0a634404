"""Turns among requests for embeddings and scores."""

from __future__ import annotations

import numpy as np

from jan_serve.engine.embedding.input_pooling import EmbedJob
from jan_serve.engine.job_turns import LONG_TURN, JobTurns
from jan_serve.ipc.messages import EmbedRequest

VECTOR = np.zeros(2, np.float32)


def job_of(request_id: int, client: str, inputs: int) -> EmbedJob:
    return EmbedJob(EmbedRequest(id=request_id, inputs=(), client=client), [[1]] * inputs)


def order(turns: JobTurns, *, batches_of_input: int = 1, steps: int = 1000) -> list[int]:
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


def turns_of(*jobs: EmbedJob) -> JobTurns:
    turns = JobTurns()
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


def test_a_single_job_is_never_paused() -> None:
    job = job_of(1, "a", 50)
    job.is_open = True
    assert order(turns_of(job)) == [1] * 50
    assert job.is_open


def test_a_dropped_job_is_not_computed() -> None:
    turns = turns_of(job_of(1, "a", 5), job_of(2, "a", 5), job_of(3, "b", 1))
    assert turns.current is not None
    turns.drop(1)
    turns.drop(2)
    assert order(turns) == [3]
    assert turns.current is None

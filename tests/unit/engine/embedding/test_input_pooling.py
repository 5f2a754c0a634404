"""Which tokens of which inputs a batch holds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from jan_serve.engine.embedding.input_pooling import (
    GROUP_TOKENS,
    MAX_SEQUENCES,
    EmbedJob,
    LastTokenScores,
    num_together,
    unread,
)
from jan_serve.ipc.messages import EmbedRequest
from tests.unit.engine.branching_context import Contexts, values_after


def test_whole_inputs_stay_within_a_small_batch() -> None:
    assert num_together([20, 30, 14, 1], 64) == 3


@pytest.mark.parametrize("room", [1, 3, 16, 128])
def test_all_tokens_are_read_once_and_in_order(room: int) -> None:
    ends, start = [11, 50, 12, 12, 140, *[11] * 30], 10
    read: list[tuple[int, int]] = []
    while parts := unread(ends, start, len(read), room):
        assert sum(last - first for _, first, last in parts) <= room
        read += [(number, place) for number, first, last in parts for place in range(first, last)]
    assert read == [(number, place) for number, end in enumerate(ends) for place in range(start, end)]


SIZE = 2


def job_of(rows: Sequence[Sequence[int]]) -> EmbedJob:
    return EmbedJob(EmbedRequest(id=1, inputs=()), [list(row) for row in rows])


def contexts_of() -> Contexts:
    return Contexts(n_sequences=MAX_SEQUENCES + 1)


def finish(scores: LastTokenScores, job: EmbedJob, contexts: Contexts, room: int = 4096) -> list[int]:
    """The sizes of the batches."""
    sizes: list[int] = []
    while not job.is_done:
        scores.advance(job, room, contexts.compute)
        sizes.append(contexts.current.decoded[-1])
    return sizes


def rows_of(lengths: Sequence[int], shared: int = 0) -> list[list[int]]:
    """Rows of these lengths, which begin alike and then differ."""
    random = np.random.default_rng(3)
    prefix = random.integers(100, 200, shared).tolist()
    return [
        [*prefix, number, *random.integers(100, 200, length - shared - 1).tolist()]
        for number, length in enumerate(lengths)
    ]


ROWS = {
    "one": rows_of([40]),
    "one token": [[3]],
    "equal": [[1, 2, 3, 4]] * 3,
    "nothing alike": rows_of([9, 1, 30, 2, 2]),
    "a common query": rows_of([60, 41, 100, 42], shared=40),
    "only the last token differs": rows_of([41, 41, 41], shared=40),
    "one is the beginning of another": [[1, 2, 3], [1, 2, 3, 4, 5], [1, 2]],
    "more than sequences": rows_of([30 + number % 7 for number in range(2 * MAX_SEQUENCES + 3)], shared=20),
    "more than a group": rows_of([GROUP_TOKENS // 2] * 5, shared=30),
    "longer than a group": rows_of([GROUP_TOKENS + 500, 50, GROUP_TOKENS + 700], shared=30),
}


@pytest.mark.parametrize("room", [7, 128, 4096])
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_scores_are_those_of_each_input_alone(rows: list[list[int]], room: int) -> None:
    contexts = contexts_of()
    scores = LastTokenScores(contexts.create, SIZE, 128)
    job = job_of(rows)
    sizes = finish(scores, job, contexts, room)
    np.testing.assert_array_equal(job.vectors, [values_after(tuple(row), SIZE) for row in rows])
    assert max(sizes) <= max(room, MAX_SEQUENCES) and max(sizes) <= 128


def test_a_common_prefix_is_read_once() -> None:
    contexts = contexts_of()
    rows = rows_of([60] * 20, shared=50)
    job = job_of(rows)
    sizes = finish(LastTokenScores(contexts.create, SIZE, 128), job, contexts)
    assert sum(sizes) == 50 + 20 * 10
    assert job.num_shared == 50


@pytest.mark.parametrize("after", range(6))
def test_a_job_that_is_given_up_leaves_nothing_to_the_next(after: int) -> None:
    contexts = contexts_of()
    scores = LastTokenScores(contexts.create, SIZE, 32)
    given_up = job_of(rows_of([90, 91, 92], shared=60))
    for _ in range(after):
        scores.advance(given_up, 32, contexts.compute)
    scores.advance(given_up, 32, contexts.interrupt)
    assert not given_up.is_done
    rows = rows_of([70, 50, 40], shared=30)
    job = job_of(rows)
    finish(scores, job, contexts)
    np.testing.assert_array_equal(job.vectors, [values_after(tuple(row), SIZE) for row in rows])

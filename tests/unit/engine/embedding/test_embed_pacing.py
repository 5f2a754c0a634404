"""Embeddings beside streams: small batches, and most of the time for the streams."""

from __future__ import annotations

import pytest

from jan_serve.engine.embedding.embed_pacing import MIN_TOKENS, STREAM_SHARE, EmbedPacing
from tests.support.clock import TurnedClock

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

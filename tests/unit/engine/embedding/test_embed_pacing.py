"""Embeddings beside streams: small batches, and most of the time for the streams."""

from __future__ import annotations

import pytest

from jan_serve.engine.embedding.embed_pacing import LEAST_TOKENS, EmbedPacing
from jan_serve.engine.scheduling.pacing import STREAM_SHARE
from tests.support.clock import TurnedClock

MOST = 128


def test_alone_they_have_whole_batches() -> None:
    clock = TurnedClock()
    pacing = EmbedPacing(clock=clock)
    for _ in range(3):
        assert pacing.room(has_streams=False, most=MOST) == MOST
        with pacing.batch(MOST):
            clock.turn(5.0)


@pytest.mark.parametrize("share", [0.3, STREAM_SHARE, 0.9])
@pytest.mark.parametrize("step_s", [0.02, 0.1, 0.5, 3.0])
@pytest.mark.parametrize("token_s", [0.0005, 0.004, 0.05])
def test_both_keep_their_shares(step_s: float, token_s: float, share: float) -> None:
    clock = TurnedClock()
    pacing = EmbedPacing(share, clock)
    of_streams = of_batches = 0.0
    rooms: list[int] = []
    while len(rooms) < 200:
        with pacing.step():
            clock.turn(step_s)
        of_streams += step_s
        room = pacing.room(has_streams=True, most=MOST)
        if room:
            with pacing.batch(room):
                clock.turn(room * token_s)
            of_batches += room * token_s
            rooms.append(room)
    # The last batch is not paid for yet.
    assert of_streams / (of_streams + of_batches) >= share - 0.02
    assert all(LEAST_TOKENS <= room <= MOST for room in rooms)
    # Streams have more where a step takes longer than what is owed, unless batches may have no more tokens.
    if rooms[-1] < MOST:
        assert of_streams <= 200 * step_s + of_batches * share / (1 - share)


def test_a_long_step_leaves_room_for_a_large_batch() -> None:
    clock = TurnedClock()
    pacing = EmbedPacing(clock=clock)
    with pacing.batch(100):
        clock.turn(1.0)  # 10 ms a token
    for _ in range(2):
        with pacing.step():
            clock.turn(1.4)
    assert pacing.room(has_streams=True, most=MOST) in (59, 60)
    assert pacing.room(has_streams=True, most=32) == 32


def test_what_streams_had_alone_is_not_saved_up() -> None:
    clock = TurnedClock()
    pacing = EmbedPacing(clock=clock)
    for _ in range(100):
        with pacing.step():
            clock.turn(1.0)
    assert pacing.room(has_streams=True, most=MOST)
    with pacing.batch(LEAST_TOKENS):
        clock.turn(0.2)
    assert not pacing.room(has_streams=True, most=MOST)


def test_nothing_is_owed_to_streams_that_have_ended() -> None:
    clock = TurnedClock()
    pacing = EmbedPacing(clock=clock)
    with pacing.batch(LEAST_TOKENS):
        clock.turn(60.0)
    assert pacing.room(has_streams=True, most=MOST) == 0
    assert pacing.room(has_streams=False, most=MOST) == MOST
    assert pacing.room(has_streams=True, most=MOST) == LEAST_TOKENS

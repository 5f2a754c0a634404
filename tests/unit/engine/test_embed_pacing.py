"""Embeddings beside streams: small batches, and three fifths of the time for the streams."""

from __future__ import annotations

import pytest

from jan_serve.engine.embed_pacing import STREAMS_SHARE, TOKENS_BESIDE_STREAMS, EmbedPacing
from jan_serve.engine.input_pooling import PIECE_TOKENS
from tests.support.clock import TurnedClock


def test_alone_they_have_whole_batches() -> None:
    clock = TurnedClock()
    pacing = EmbedPacing(clock)
    for _ in range(3):
        assert pacing.room(has_streams=False) == PIECE_TOKENS
        with pacing.batch():
            clock.turn(5.0)


@pytest.mark.parametrize(("step_s", "batch_s"), [(0.02, 0.2), (0.2, 0.02), (0.1, 0.1)])
def test_streams_keep_their_share(step_s: float, batch_s: float) -> None:
    clock = TurnedClock()
    pacing = EmbedPacing(clock)
    of_streams = of_batches = 0.0
    while of_batches < 20 * batch_s:
        with pacing.step():
            clock.turn(step_s)
        of_streams += step_s
        room = pacing.room(has_streams=True)
        assert room in (0, TOKENS_BESIDE_STREAMS)
        if room:
            with pacing.batch():
                clock.turn(batch_s)
            of_batches += batch_s
    # The last batch is not paid for yet.
    assert of_streams / (of_streams + of_batches) >= STREAMS_SHARE - 0.03
    # Embeddings go on: at most a step more than is owed lies between two batches.
    assert of_streams <= 20 * (batch_s * STREAMS_SHARE / (1 - STREAMS_SHARE) + step_s) + step_s


def test_what_streams_had_alone_is_not_saved_up() -> None:
    clock = TurnedClock()
    pacing = EmbedPacing(clock)
    for _ in range(100):
        with pacing.step():
            clock.turn(1.0)
    assert pacing.room(has_streams=True)
    with pacing.batch():
        clock.turn(0.2)
    assert not pacing.room(has_streams=True)


def test_nothing_is_owed_to_streams_that_have_ended() -> None:
    clock = TurnedClock()
    pacing = EmbedPacing(clock)
    with pacing.batch():
        clock.turn(60.0)
    assert pacing.room(has_streams=True) == 0
    assert pacing.room(has_streams=False) == PIECE_TOKENS
    assert pacing.room(has_streams=True) == TOKENS_BESIDE_STREAMS

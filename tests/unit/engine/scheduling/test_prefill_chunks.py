"""Prefill beside running streams comes in small chunks and leaves the streams most of the time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jan_serve.engine.scheduling.prefill_chunks import STREAM_SHARE, Pacer, prefill_budget
from jan_serve.engine.scheduling.prefill_costs import TILE, CachePosition
from jan_serve.engine.sequence import Sequence
from tests.unit.engine.fake_context import sequence_of


def learned(
    decode_s: float, token_s: float, *, target_s: float = 0.1, chunk: int = 512, share: float = STREAM_SHARE
) -> Pacer:
    """A pacer that has measured enough steps of this speed and owes its streams no time."""
    pacer = Pacer(target_s, chunk, stream_share=share)
    for _ in range(40):
        pacer.observe(4, 0, decode_s)
        pacer.observe(4, 64, decode_s + 64 * token_s)
    pacer.observe(0, 64, 64 * token_s)
    return pacer


@pytest.mark.parametrize(
    ("token_s", "expected"),
    [
        (None, 512),  # of a large model on a slow machine, 36 s
        (0.0001, 2048),
        (0.001, 2048),
        (0.004, 960),
        (0.05, 64),
        (1.0, 64),
    ],
)
@pytest.mark.parametrize("prefilling", [1, 9])
def test_steps_without_streams_are_bounded_in_time(
    token_s: float | None, prefilling: int, expected: int
) -> None:
    pacer = Pacer(0.1, 2048) if token_s is None else learned(0.05, token_s, chunk=2048)
    assert pacer.prefill_tokens(0, prefilling) == expected


@pytest.mark.parametrize(("streams", "prefilling"), [(1, 1), (1, 2), (1, 7), (3, 4)])
def test_a_running_stream_does_not_stall_however_many_prompts_arrive(streams: int, prefilling: int) -> None:
    pacer = learned(0.02, 0.004, chunk=2048)
    assert pacer.prefill_tokens(streams, prefilling) * 0.004 <= Pacer.LONGEST_S
    pacer.observe(streams, 16, 0.02 + 16 * 0.004)
    assert pacer.prefill_tokens(streams, prefilling) == 0, "it is the streams' turn"


@pytest.mark.parametrize(
    ("late_tokens", "cut"),
    [
        (200, False),  # 0.2 s
        (2000, False),
        (2100, True),
        (6000, True),
        (None, True),  # a stream has more tokens
    ],
)
def test_prompts_that_arrive_almost_together_are_not_cut_for_streams_that_have_just_begun(
    late_tokens: int | None, *, cut: bool
) -> None:
    pacer = learned(0.02, 0.001)
    assert (pacer.prefill_tokens(4, 4, late_tokens=late_tokens) < 512) == cut
    # No speed is known yet.
    assert Pacer(0.1, 512).prefill_tokens(4, 4, late_tokens=late_tokens) == Pacer.MIN_TOKENS


@pytest.mark.parametrize(
    ("streams", "prefilling", "late_tokens", "cut"),
    [(1, 7, 13_900, False), (1, 7, 14_100, True), (7, 1, 280, False), (7, 1, 290, True)],
)
def test_the_burst_grows_with_the_prompts_and_shrinks_with_the_streams(
    streams: int, prefilling: int, late_tokens: int, *, cut: bool
) -> None:
    pacer = learned(0.02, 0.001)
    assert (pacer.prefill_tokens(streams, prefilling, late_tokens=late_tokens) < 512) == cut


@pytest.mark.parametrize(
    ("late_tokens", "together_tokens", "expected"),
    [
        (190, 190, 190),
        (11_900, 11_900, 512),
        (12_100, 12_100, 0),
        (12_100, 300, 300),  # the others came later
        (3_900, 0, 0),
    ],
)
def test_prompts_that_arrived_with_the_streams_run_uncut_over_several_steps(
    late_tokens: int, together_tokens: int, expected: int
) -> None:
    pacer = learned(0.02, 0.001)
    pacer.observe(26, 16, 0.036)
    budget = pacer.prefill_tokens(26, 1, late_tokens=late_tokens, together_tokens=together_tokens)
    assert budget == expected


def test_the_first_chunk_beside_streams_is_small() -> None:
    assert Pacer(0.1, 512).prefill_tokens(3, 1) == Pacer.MIN_TOKENS
    assert Pacer(0.1, 8).prefill_tokens(3, 1) == 8


@pytest.mark.parametrize(
    ("decode_s", "token_s", "expected"),
    [
        (0.02, 0.001, 80),
        (0.05, 0.001, 50),
        (0.02, 0.00001, 512),  # never above the chunk
        (0.02, 0.1, Pacer.MIN_TOKENS),  # prefill goes on, however slow it is
        (0.5, 0.001, Pacer.MIN_TOKENS),  # decoding alone is over the target
    ],
)
def test_the_rest_of_the_step_goes_to_prefill(decode_s: float, token_s: float, expected: int) -> None:
    assert learned(decode_s, token_s).prefill_tokens(4, 1) == pytest.approx(expected, abs=1)


def test_a_chunk_below_the_minimum_stays_the_limit() -> None:
    assert learned(0.5, 0.001, chunk=8).prefill_tokens(4, 1) == 8


def test_changed_speeds_are_learnt() -> None:
    pacer = learned(0.02, 0.001)
    for _ in range(40):
        pacer.observe(4, 0, 0.02)
        pacer.observe(4, 64, 0.02 + 64 * 0.002)
    pacer.observe(0, 64, 64 * 0.002)
    assert pacer.prefill_tokens(4, 1) == pytest.approx(40, abs=1)


def test_the_time_of_a_tiny_prefill_is_ignored() -> None:
    pacer = Pacer(0.1, 512)
    pacer.observe(0, 1, 10.0)
    assert pacer.prefill_tokens(1, 1) == Pacer.MIN_TOKENS


def test_an_empty_step_teaches_nothing() -> None:
    pacer = learned(0.02, 0.001)
    before = pacer.prefill_tokens(4, 1)
    pacer.observe(0, 0, 100.0)
    assert pacer.prefill_tokens(4, 1) == before


@pytest.mark.parametrize("share", [0.4, STREAM_SHARE, 0.9])
@pytest.mark.parametrize(("decode_s", "token_s"), [(0.02, 0.009), (0.085, 0.009), (0.01, 0.0001)])
def test_streams_keep_their_share_of_the_time_while_a_long_prompt_is_prefilled(
    decode_s: float, token_s: float, share: float
) -> None:
    pacer, left, now, steps = learned(decode_s, token_s, share=share), 6000, 0.0, 0
    while left > 0:
        tokens = min(left, pacer.prefill_tokens(2, 1))
        seconds = decode_s + tokens * token_s
        pacer.observe(2, tokens, seconds)
        left, now, steps = left - tokens, now + seconds, steps + 1
    assert share - 0.02 <= steps * decode_s / now <= min(0.95, share + 0.25), "prefill must go on as well"


def test_a_target_of_zero_cuts_nothing() -> None:
    assert Pacer(0.0, 512).prefill_tokens(4, 1) == 512


def test_long_drafts_do_not_make_prefill_look_cheap() -> None:
    """Of 0.12 s for two streams and a chunk, 0.04 s are decoding: the streams get seven thirds of the rest."""
    plain, drafting = Pacer(0.1, 512, tiles=False), Pacer(0.1, 512, tiles=False)
    for _ in range(8):
        plain.observe(2, 0, 0.04)
        drafting.observe(2, 0, 0.04)
    for _ in range(40):
        drafting.observe(32, 0, 0.2, num_drafted=30)
    for pacer in (plain, drafting):
        pacer.observe(2, 16, 0.12)
        assert pacer.prefill_tokens(2, 1) == 0
        pacer.observe(2, 0, 0.18)
        assert pacer.prefill_tokens(2, 1) == 0
        pacer.observe(2, 0, 0.007)
        assert pacer.prefill_tokens(2, 1) == Pacer.MIN_TOKENS


def test_drafts_alone_give_a_first_guess_of_decoding() -> None:
    pacer = Pacer(0.1, 512, tiles=False)
    pacer.observe(32, 0, 0.2, num_drafted=30)
    pacer.observe(2, 16, 0.1125)
    pacer.observe(2, 0, 0.23)
    assert pacer.prefill_tokens(2, 1) == 0
    pacer.observe(2, 0, 0.004)
    assert pacer.prefill_tokens(2, 1) == Pacer.MIN_TOKENS


SHALLOW, DEEP = CachePosition(0, 0), CachePosition(6000, 6000)


def paced(narrow_s: float, tile_s: float | None, *, streams: int = 2, tiles: bool = True) -> int:
    """The next chunk at depth 6,000, where a token costs `narrow_s` in few rows and `tile_s` in a tile.

    At the start of a prompt a token costs 4 ms at most.
    """
    pacer = Pacer(0.1, 512, tiles=tiles)
    pacer.observe(0, 60, 60 * min(0.004, 0.8 * narrow_s), position=SHALLOW)
    pacer.observe(streams, 0, 0.04)
    pacer.observe(streams, 20, 0.04 + 20 * narrow_s, position=DEEP)
    if tile_s is not None:
        pacer.observe(streams, 64 - streams, 0.04 + (64 - streams) * tile_s, position=DEEP)
    while pacer.prefill_tokens(streams, 1, DEEP) == 0:
        pacer.observe(streams, 0, 0.04)
    return pacer.prefill_tokens(streams, 1, DEEP)


@pytest.mark.parametrize(
    ("narrow_s", "tile_s", "expected"),
    [
        (0.025, 0.0134, 62),
        (0.007, 0.0060, 62),
        (0.006, 0.0056, 16),
        (0.025, None, 62),  # tried
        (0.045, None, 16),  # a pause of more than a second even at the best cost of a tile
        (0.030, 0.0155, 62),
        (0.030, 0.0165, 16),  # a pause of more than a second
        (0.001, 0.0009, 66),  # more than a tile fits
        (0.001, 0.0011, 60),
    ],
)
def test_a_chunk_fills_a_tile_of_the_attention_where_that_pays(
    narrow_s: float, tile_s: float | None, expected: int
) -> None:
    assert paced(narrow_s, tile_s) == pytest.approx(expected, abs=2)


def test_tiles_can_be_off() -> None:
    assert paced(0.025, None, tiles=False) == Pacer.MIN_TOKENS


def test_costs_at_the_end_of_a_prompt_do_not_count_at_the_start_of_the_next() -> None:
    pacer = Pacer(0.1, 512)
    pacer.observe(0, 60, 60 * 0.003, position=SHALLOW)
    pacer.observe(2, 0, 0.04)
    pacer.observe(2, 20, 0.04 + 20 * 0.025, position=DEEP)
    while pacer.prefill_tokens(2, 1, SHALLOW) == 0:
        pacer.observe(2, 0, 0.04)
    assert pacer.prefill_tokens(2, 1, DEEP) == TILE - 2
    assert pacer.prefill_tokens(2, 1, SHALLOW) == pytest.approx(0.06 / 0.003, abs=1)
    assert pacer.prefill_token_s == pytest.approx(0.003)


def test_the_rest_of_a_prompt_must_be_long_enough_for_a_tile() -> None:
    pacer = Pacer(0.1, 512)
    pacer.observe(2, 0, 0.04)
    pacer.observe(0, 400, 400 * 0.004, position=SHALLOW)
    pacer.observe(0, 400, 400 * 0.012, position=DEEP)
    assert pacer.prefill_tokens(2, 1, DEEP, available=62) == 62
    assert pacer.prefill_tokens(2, 1, DEEP, available=61) == Pacer.MIN_TOKENS


def test_the_tokens_of_the_streams_are_part_of_the_tile() -> None:
    assert paced(0.025, 0.0134, streams=8) == TILE - 8
    assert paced(0.025, 0.0134, streams=60) == Pacer.MIN_TOKENS


@pytest.mark.parametrize("others", [0, 2000])
def test_a_long_prompt_is_prefilled_in_tiles_where_they_pay(others: int) -> None:
    """Costs of a 0.5 B model on two cores. Tiles read the streams' cells too."""
    took: dict[bool, float] = {}
    for tiles in (False, True):
        pacer, done = Pacer(0.1, 512, tiles=tiles), 0
        pacer.observe(0, 100, 100 * 0.005, position=SHALLOW)
        pacer.observe(2, 0, 0.04)
        took[tiles] = 0.0
        while done < 6000:
            position = CachePosition(done, done + others)
            left = 6000 - done
            tokens = min(left, pacer.prefill_tokens(2, 1, position, available=left))
            cells_s = 3.2e-6 * position.depth if tokens + 2 < TILE else 1.0e-6 * position.cells
            seconds = 0.04 + tokens * (0.005 + cells_s)
            assert seconds < Pacer.LONGEST_S + 0.1
            pacer.observe(2, tokens, seconds, position=position)
            done, took[tiles] = done + tokens, took[tiles] + seconds
        assert (pacer.tiles_total > 0) == tiles
    assert took[True] < 0.8 * took[False]


class RecordingPacer:
    """A pacer that records its arguments."""

    def prefill_tokens(
        self, num_streams: int, num_prefilling: int, position: CachePosition, **rest: Any
    ) -> int:
        self.arguments = {
            "num_streams": num_streams,
            "num_prefilling": num_prefilling,
            "position": position,
        } | rest
        return 7


def prompt(length: int, *, arrived: float, computed: int = 0) -> Sequence:
    sequence = sequence_of(np.zeros(length, np.int32))
    sequence.prefill_end, sequence.num_computed, sequence.state.arrived = length, computed, arrived
    return sequence


def stream(num_generated: int, *, first_token: float) -> Sequence:
    sequence = prompt(10, arrived=0.0, computed=10)
    sequence.num_generated, sequence.state.first_token = num_generated, first_token
    return sequence


def arguments_for(*turn: Sequence) -> dict[str, Any]:
    pacer: Any = RecordingPacer()
    assert prefill_budget(pacer, turn, cells=300) == 7
    return pacer.arguments


def test_the_budget_depends_on_the_streams_and_the_first_prompt() -> None:
    arguments = arguments_for(
        stream(9, first_token=1.0), prompt(100, arrived=2.0, computed=40), prompt(50, arrived=3.0)
    )
    assert (arguments["num_streams"], arguments["num_prefilling"]) == (1, 2)
    assert arguments["position"] == CachePosition(40, 300), "of the first prompt that is read"
    assert arguments["available"] == 110


@pytest.mark.parametrize(("num_generated", "late"), [(1, 160), (7, 160), (8, None)])
def test_streams_with_few_tokens_have_just_begun(num_generated: int, late: int | None) -> None:
    prompts = prompt(100, arrived=2.0, computed=40), prompt(100, arrived=3.0)
    assert (
        arguments_for(stream(1, first_token=1.0), stream(num_generated, first_token=1.0), *prompts)[
            "late_tokens"
        ]
        == late
    )


@pytest.mark.parametrize(
    ("first_tokens", "num_generated", "together"),
    [
        ((1.0,), 1, 0),
        ((2.0,), 1, 60),
        ((2.5, 1.0), 1, 60),
        ((1.0, 3.0), 1, 160),
        ((1.0, 3.0), 3, 160),
        ((1.0, 3.0), 4, 0),  # more than the first tokens
    ],
)
def test_prompts_arrived_together_with_a_stream_if_they_waited_for_its_first_token(
    first_tokens: tuple[float, ...], num_generated: int, together: int
) -> None:
    streams = [stream(num_generated, first_token=at) for at in first_tokens]
    prompts = prompt(100, arrived=2.0, computed=40), prompt(100, arrived=3.0)
    assert arguments_for(*streams, *prompts)["together_tokens"] == together


def test_the_budget_without_prompts_or_without_streams() -> None:
    assert arguments_for(stream(1, first_token=1.0))["together_tokens"] == 0
    alone = arguments_for(prompt(100, arrived=2.0))
    assert (alone["num_streams"], alone["late_tokens"], alone["together_tokens"]) == (0, 100, 0)
    assert arguments_for()["position"] == CachePosition(0, 300)

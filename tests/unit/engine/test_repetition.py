"""The detector finds what vLLM's definition finds, at the same token, with a bounded number of looks."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jan_serve.core.request import LOOPS, RepetitionDetection
from jan_serve.engine.repetition import RepetitionDetector
from tests.unit.engine.looping_texts import KINDS_OF_TEXT, byte_tokens, word_tokens

_LOOP = LOOPS["end"]
assert _LOOP is not None
LOOP = _LOOP


def repeats(tokens: list[int], wanted: RepetitionDetection) -> bool:
    """The definition."""
    for size in range(max(1, wanted.min_pattern_size), wanted.max_pattern_size + 1):
        length = size * max(wanted.min_count, -(-wanted.min_tokens // size))
        end = tokens[-length:]
        if len(tokens) >= length and end == end[:size] * (length // size):
            return True
    return False


def first_by_definition(tokens: list[int], wanted: RepetitionDetection) -> int | None:
    return next((n for n in range(1, len(tokens) + 1) if repeats(tokens[:n], wanted)), None)


def first_found(tokens: Iterable[int], wanted: RepetitionDetection) -> int | None:
    detector = RepetitionDetector(wanted)
    return next((n for n, token in enumerate(tokens, start=1) if detector.add(token)), None)


patterns = st.tuples(st.integers(1, 5), st.integers(0, 7), st.integers(2, 6), st.integers(0, 30)).map(
    lambda drawn: RepetitionDetection(
        min_pattern_size=drawn[0],
        max_pattern_size=drawn[0] + drawn[1],
        min_count=drawn[2],
        min_tokens=drawn[3],
    )
)
pieces = st.lists(
    st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=8), st.integers(1, 7)), max_size=6
)


@settings(max_examples=30)
@given(patterns, pieces)
def test_it_finds_the_token_of_the_definition(
    wanted: RepetitionDetection, drawn: list[tuple[list[int], int]]
) -> None:
    tokens = [token for piece, count in drawn for token in piece * count]
    assert first_found(tokens, wanted) == first_by_definition(tokens, wanted)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 16, 100, 511, 512])
@pytest.mark.parametrize("before", [0, 1, 997])
def test_a_loop_ends_at_the_token_that_makes_it_one(size: int, before: int) -> None:
    draw = random.Random(size)
    loop = draw.sample(range(1_000), size)
    free = draw.choices(range(2_000, 40_000), k=before)
    length = size * max(LOOP.min_count, -(-LOOP.min_tokens // size))
    tokens = free + loop * (length // size + 2)
    assert first_found(tokens, LOOP) == before + length


@pytest.mark.parametrize("wanted", [RepetitionDetection(max_pattern_size=64, min_count=2), LOOP])
def test_a_pattern_that_is_too_long_or_broken_is_none(wanted: RepetitionDetection) -> None:
    longer = list(range(wanted.max_pattern_size + 1)) * 40
    assert first_found(longer, wanted) is None
    counted = [token for n in range(3_000) for token in (7, 8, 9, 100 + n)]
    assert first_found(counted, wanted) is None


def test_the_continuing_token_is_known_and_the_loop_is_found_again() -> None:
    detector = RepetitionDetector(RepetitionDetection(max_pattern_size=4, min_count=3))
    found = [detector.add(token) for token in [5, 6, 7] * 3]
    assert found == [0] * 8 + [3]
    assert detector.next_of(3) == 5
    assert [detector.add(token) for token in [9, *[5, 6, 7] * 3]][-1] == 3
    assert [detector.add(token) for token in [5, 6, 7, 8]] == [3, 3, 3, 0]


class CountedLooks(RepetitionDetector):
    looks = 0

    def _look(self, size: int) -> bool:
        self.looks += 1
        return super()._look(size)


@pytest.mark.parametrize(
    ("wanted", "most"),
    [
        (LOOP, 1),
        (RepetitionDetection(max_pattern_size=64, min_count=2), 16),
        (RepetitionDetection(max_pattern_size=4_096, min_count=2), 32),
        (RepetitionDetection(max_pattern_size=4_096, min_pattern_size=512, min_count=16), 1),
    ],
)
@pytest.mark.parametrize("kind", ["words", "letters", "one word"])
def test_a_token_costs_a_few_looks_however_long_the_text(
    wanted: RepetitionDetection, most: int, kind: str
) -> None:
    draw = random.Random(1)
    range_of = {"words": range(30_000), "letters": range(2), "one word": range(1)}[kind]
    per_token: list[float] = []
    for length in (5_000, 10_000):
        detector = CountedLooks(wanted)
        for token in draw.choices(range_of, k=length):
            detector.add(token)
        per_token.append(detector.looks / length)
    assert max(per_token) <= most
    assert per_token[1] <= per_token[0] * 1.5 + 0.5


Tokenizer = Callable[[str], list[int]]


def texts(kind: str, count: int) -> Iterator[str]:
    for number in range(count):
        yield KINDS_OF_TEXT[kind](random.Random(number))


@pytest.mark.parametrize("tokenizer", [word_tokens, byte_tokens])
@pytest.mark.parametrize("kind", KINDS_OF_TEXT)
def test_texts_that_may_repeat_are_no_loops(kind: str, tokenizer: Tokenizer) -> None:
    stopped = [number for number, text in enumerate(texts(kind, 15)) if first_found(tokenizer(text), LOOP)]
    assert stopped == []

"""SequenceText: text is released when it is certain, and every token beside its text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.core.events import TokenInfo
from jan_serve.engine.sequence import Emission, SequenceText


def token(number: int, piece: bytes) -> TokenInfo:
    return TokenInfo(number, piece)


class Folded(NamedTuple):
    """All that a sequence sent."""

    text: str
    tokens: tuple[TokenInfo, ...]
    stop: str | None
    emissions: tuple[Emission, ...]

    @property
    def bytes(self) -> bytes:
        return b"".join(info.piece for info in self.tokens)


def fold(pieces: Sequence[bytes], stops: Sequence[str] = (), *, include_stop: bool = False) -> Folded:
    """Push the pieces as tokens 0, 1, … until a stop string ends the text, or to the end."""
    sequence = SequenceText(tuple(stops), include_stop=include_stop, keep_tokens=True)
    emissions: list[Emission] = []
    for number, piece in enumerate(pieces):
        emissions.append(sequence.push(piece, token(number, piece)))
        if emissions[-1].stop is not None:
            break
    else:
        emissions.append(sequence.finish())
    tokens = tuple(info for emission in emissions for info in emission.tokens)
    text = "".join(emission.text for emission in emissions)
    return Folded(text, tokens, emissions[-1].stop, tuple(emissions))


def every_split(data: bytes) -> Iterator[list[bytes]]:
    """All ways to cut `data` into three tokens (some without text), and byte by byte."""
    for i in range(len(data) + 1):
        for j in range(i, len(data) + 1):
            yield [data[:i], data[i:j], data[j:]]
    yield [data[i : i + 1] for i in range(len(data))]


TEXTS = ("plain text", "a😀é模b", "END at the start", "the END", "almost EN", "é\nEND😀")


@pytest.mark.parametrize("stops", [(), ("END",), ("N", "END", "模b"), ("never",), ("😀",)])
@pytest.mark.parametrize("text", TEXTS)
def test_text_does_not_depend_on_the_tokens(text: str, stops: tuple[str, ...]) -> None:
    expected = fold([text.encode()], stops)
    for pieces in every_split(text.encode()):
        found = fold(pieces, stops)
        assert (found.text, found.stop) == (expected.text, expected.stop), pieces


@pytest.mark.parametrize("include_stop", [False, True])
@given(
    pieces=st.lists(st.text("abé", max_size=3).map(str.encode), max_size=8),
    stops=st.lists(st.text("abé", min_size=1, max_size=3), max_size=3),
)
def test_tokens_end_where_the_text_is_cut(pieces: list[bytes], stops: list[str], include_stop: bool) -> None:
    """Joined tokens begin with the text, and without the last one they are shorter than it."""
    found = fold(pieces, stops, include_stop=include_stop)
    assert found.bytes.startswith(found.text.encode())
    if found.stop is None:
        assert found.bytes == found.text.encode()
        return
    if include_stop:
        assert found.text.endswith(found.stop)
    with_text = [info for info in found.tokens if info.piece]
    before_last = b"".join(info.piece for info in with_text[:-1])
    assert not with_text or len(before_last) < len(found.text.encode())


@given(
    pieces=st.lists(st.text("abé", max_size=3).map(str.encode), max_size=8),
    stops=st.lists(st.text("abé", min_size=1, max_size=3), max_size=3),
)
def test_tokens_are_never_ahead_of_the_text_nor_behind_it(pieces: list[bytes], stops: list[str]) -> None:
    """After each push: exactly the tokens that start before the released end are out."""
    text, out = "", 0
    for emission in fold(pieces, stops).emissions[:-1]:
        text += emission.text
        out += len(emission.tokens)
        starts = [len(b"".join(pieces[:i])) for i in range(len(pieces))]
        released = len(text.encode())
        assert all(start <= released for start in starts[:out])
        assert out >= sum(start < released for start in starts)


def test_a_token_inside_a_character_waits_for_the_whole() -> None:
    sequence = SequenceText((), include_stop=False, keep_tokens=True)
    data = "😀".encode()
    for number in range(3):
        assert sequence.push(data[number : number + 1], token(number, b"")) == Emission("", (), None)
    emission = sequence.push(data[3:], token(3, b""))
    assert emission.text == "😀"
    assert [info.id for info in emission.tokens] == [0, 1, 2, 3]


def test_a_token_without_text_waits_only_behind_held_text() -> None:
    sequence = SequenceText(("ab",), include_stop=False, keep_tokens=True)
    assert sequence.push(b"", token(0, b"")) == Emission("", (token(0, b""),), None)
    assert sequence.push(b"xa", token(1, b"")) == Emission("x", (token(1, b""),), None)
    assert sequence.push(b"", token(2, b"")) == Emission("", (), None)
    assert sequence.push(b"c", token(3, b"")) == Emission("ac", (token(2, b""), token(3, b"")), None)


def test_included_stop_keeps_its_tokens() -> None:
    found = fold([b"ab", b"cS", b"TO", b"Pz"], ("STOP",), include_stop=True)
    assert (found.text, found.stop) == ("abcSTOP", "STOP")
    assert [info.id for info in found.tokens] == [0, 1, 2, 3]


def test_an_unfinished_character_may_complete_a_stop_at_the_end() -> None:
    found = fold([b"a", b"\xf0\x9f"], ("\ufffd",))
    assert (found.text, found.stop) == ("a", "\ufffd")
    assert [info.id for info in found.tokens] == [0]


def test_stops_at_token_ends_stay_in_the_text_and_hold_nothing_back() -> None:
    sequence = SequenceText(("END",), include_stop=True, keep_tokens=True, at_token_end=True)
    pieces = (b"the END of", b" it E", b"N", b"D")
    emissions = [sequence.push(piece, token(number, piece)) for number, piece in enumerate(pieces)]
    assert [emission.text.encode() for emission in emissions] == list(pieces)
    assert [emission.stop for emission in emissions] == [None, None, None, "END"]
    assert [len(emission.tokens) for emission in emissions] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("free_tokens", "text", "stop"),
    [(0, "", "ab"), (1, "ab", "ab"), (2, "ab", "ab"), (3, "ababa", None), (9, "ababa", None)],
)
def test_no_stop_is_looked_for_in_the_first_tokens(free_tokens: int, text: str, stop: str | None) -> None:
    sequence = SequenceText(("ab",), include_stop=False, keep_tokens=True, free_tokens=free_tokens)
    emissions: list[Emission] = []
    for number, piece in enumerate((b"a", b"b", b"a", b"b", b"a")):
        emissions.append(sequence.push(piece, token(number, piece)))
        if emissions[-1].stop is not None:
            break
    else:
        emissions.append(sequence.finish())
    assert "".join(emission.text for emission in emissions) == text
    assert b"".join(info.piece for emission in emissions for info in emission.tokens) == text.encode()
    assert emissions[-1].stop == stop

"""MarkerSet: the first and longest marker, and unfinished ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.text.markers import MarkerMatch, MarkerSet, StopMatch, StopMatcher, TokenEndMatcher

TAGS = ("<a>", "<ab>", "<a><b>", "b>")


@pytest.mark.parametrize(
    ("text", "start", "final", "found"),
    [
        ("", 0, False, MarkerMatch(0, None)),
        ("text", 0, False, MarkerMatch(4, None)),
        ("x <ab> y", 0, False, MarkerMatch(2, "<ab>")),
        ("x <a", 0, False, MarkerMatch(2, None)),
        ("x <a", 0, True, MarkerMatch(4, None)),
        ("x <c", 0, False, MarkerMatch(4, None)),
        ("<a>", 0, False, MarkerMatch(0, None)),  # may become <a><b>
        ("<a>", 0, True, MarkerMatch(0, "<a>")),
        ("<a>c", 0, False, MarkerMatch(0, "<a>")),
        ("<a><b>", 0, False, MarkerMatch(0, "<a><b>")),
        ("<a><b", 0, False, MarkerMatch(0, None)),
        ("<ab> <ab>", 1, False, MarkerMatch(2, "b>")),
        ("<ab> <ab>", 3, False, MarkerMatch(5, "<ab>")),
    ],
)
def test_find_returns_the_first_and_longest_marker(
    text: str, start: int, final: bool, found: MarkerMatch
) -> None:
    assert MarkerSet(TAGS).find(text, start, final=final) == found


def test_an_empty_marker_is_rejected() -> None:
    with pytest.raises(ValueError, match="empty"):
        MarkerSet(("a", ""))


def divide(markers: MarkerSet, pieces: list[str]) -> list[str]:
    """The text as the markers divide it: text, marker, text, …"""
    parts, held = [""], ""
    for piece in [*pieces, None]:
        held += piece or ""
        while True:
            found = markers.find(held, final=piece is None)
            parts[-1] += held[: found.start]
            held = held[found.start + len(found.marker or "") :]
            if found.marker is None:
                break
            parts += [found.marker, ""]
    assert not held
    return parts


@given(
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=4),
    st.lists(st.text("ab", max_size=5), max_size=6),
)
def test_division_does_not_depend_on_the_pieces(markers: list[str], pieces: list[str]) -> None:
    divided = divide(MarkerSet(markers), pieces)
    assert "".join(divided) == "".join(pieces)
    assert divide(MarkerSet(markers), ["".join(pieces)]) == divided
    assert all(part in markers for part in divided[1::2])
    assert not any(marker in part for marker in markers for part in divided[::2])


class Case(NamedTuple):
    name: str
    stops: tuple[str, ...]
    text: str
    released: str
    stop: str | None


CASES = (
    Case("no stops", (), "anything", "anything", None),
    Case("not found", ("xyz",), "some xy text", "some xy text", None),
    Case("found", ("END",), "text END more", "text ", "END"),
    Case("at the start", ("END",), "END more", "", "END"),
    Case("alone", ("x",), "x", "", "x"),
    Case("one character", (".",), "One. Two.", "One", "."),
    Case("earliest occurrence", ("b", "d"), "a b c d", "a ", "b"),
    Case("order of the list does not matter", ("d", "b"), "a b c d", "a ", "b"),
    Case("a stop inside a longer one ends first", ("abcd", "bc"), "xabcd", "xa", "bc"),
    Case("one is the start of another", ("ab", "abc"), "xabc", "x", "ab"),
    Case("two end together: the longer", ("c", "abc"), "xabc", "x", "abc"),
    Case("overlapping itself", ("aab",), "aaab", "a", "aab"),
    Case("a false start", ("aaab",), "aaaaab", "aa", "aaab"),
    Case("twice the same", ("ab", "ab"), "cab", "c", "ab"),
    Case("the end could begin one", ("\n\n",), "line\n", "line\n", None),
    Case("held ends of two stops", ("abx", "by"), "ab", "ab", None),
    Case("characters outside ASCII", ("模型", "😀!"), "é模😀!", "é模", "😀!"),
    Case("case matters", ("End",), "END end", "END end", None),
)


def every_split(text: str) -> Iterator[list[str]]:
    """All ways to cut `text` into one, two or three pieces, and character by character."""
    for i in range(len(text) + 1):
        for j in range(i, len(text) + 1):
            yield [text[:i], text[i:j], text[j:]]
    yield list(text)


def fold(stops: Sequence[str], pieces: Sequence[str]) -> tuple[str, StopMatch | None]:
    matcher = StopMatcher(stops)
    released = ""
    for piece in pieces:
        text, match = matcher.feed(piece)
        released += text
        if match is not None:
            return released, match
    return released + matcher.finish(), None


def reference(stops: Sequence[str], text: str) -> tuple[str, StopMatch | None]:
    """Read the text up to each character in turn: the first time that it ends with a stop, the longest one is it."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            stop = max(found, key=len)
            return text[: end - len(stop)], StopMatch(stop, end - len(stop), end)
    return text, None


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_every_split_gives_the_same(case: Case) -> None:
    assert reference(case.stops, case.text)[0] == case.released
    for pieces in every_split(case.text):
        released, match = fold(case.stops, pieces)
        assert released == case.released, pieces
        assert (match.stop if match else None) == case.stop, pieces


@given(
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=4),
    st.lists(st.text("abc", max_size=4), max_size=8),
)
def test_against_a_brute_force_reference(stops: list[str], pieces: list[str]) -> None:
    assert fold(stops, pieces) == reference(stops, "".join(pieces))


@given(
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=4),
    st.lists(st.text("abc", max_size=4), max_size=8),
)
def test_holds_back_exactly_what_may_become_a_stop(stops: list[str], pieces: list[str]) -> None:
    matcher = StopMatcher(stops)
    seen = released = ""
    for piece in pieces:
        text, match = matcher.feed(piece)
        seen, released = seen + piece, released + text
        if match is not None:
            return
        beginnings = {stop[:size] for stop in stops for size in range(1, len(stop))}
        longest = max((b for b in beginnings if seen.endswith(b)), key=len, default="")
        assert matcher.held == longest
        assert released + matcher.held == seen


def test_finish_releases_what_was_held() -> None:
    matcher = StopMatcher(("stop",))
    assert matcher.feed("a sto") == ("a ", None)
    assert matcher.held == "sto"
    assert matcher.finish() == "sto"
    assert matcher.held == matcher.finish() == ""


def test_an_empty_stop_string_is_rejected() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopMatcher(("a", ""))


@pytest.mark.parametrize(
    ("tokens", "found_at", "stop"),
    [
        (["ab", "cd"], 1, "cd"),
        (["a", "bc", "d"], 1, "bc"),
        (["abcx", "def"], None, ""),
        (["a", "b", "c", "\n"], 2, "bc"),
        (["xbc\n", "y"], 0, "bc"),
        (["xbc\n\n", "y"], None, ""),
        (["", "cd"], 1, "cd"),
    ],
    ids=["one token", "across two", "inside of a token", "across", "before a break", "before two", "no text"],
)
def test_stops_at_token_ends(tokens: list[str], found_at: int | None, stop: str) -> None:
    matcher = TokenEndMatcher(("bc", "cd"))
    found = [matcher.feed(token) for token in tokens]
    expected = [None] * len(tokens) if found_at is None else [None] * found_at + [stop]
    assert found[: len(expected)] == expected


def test_skipped_text_counts_and_is_not_searched() -> None:
    matcher = StopMatcher(("ab",))
    matcher.skip("ab a")
    assert matcher.feed("bab") == ("b", StopMatch("ab", 5, 7))
    held = StopMatcher(("ab",))
    held.feed("a")
    with pytest.raises(ValueError, match="held back"):
        held.skip("b")

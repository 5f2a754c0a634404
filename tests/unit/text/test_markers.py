"""MarkerSet: the first and longest marker, and unfinished ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.text.markers import MarkerMatch, MarkerSet, marker_set

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


def test_an_empty_set_finds_nothing() -> None:
    assert MarkerSet(()).find("anything") == MarkerMatch(8, None)


def test_an_empty_marker_is_rejected() -> None:
    with pytest.raises(ValueError, match="empty"):
        MarkerSet(("a", ""))


def test_sets_are_shared() -> None:
    assert marker_set("a", "b") is marker_set("a", "b")


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

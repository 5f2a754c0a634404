"""Sets of code points against sets of numbers."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from jan_serve.constraint import charset
from jan_serve.constraint.charset import MAX_CODE_POINT, CharSet

# Both ends of the universe and the middle, close enough to touch and overlap.
POINTS = [*range(12), *range(0xD7FE, 0xD808), *range(MAX_CODE_POINT - 8, MAX_CODE_POINT + 1)]
RANGES = st.lists(st.tuples(st.sampled_from(POINTS), st.sampled_from(POINTS)), max_size=5)


def members(s: CharSet) -> set[int]:
    return {point for point in POINTS if any(low <= point <= high for low, high in s)}


def is_normal(s: CharSet) -> bool:
    """Sorted, not empty, and with a gap between any two ranges."""
    return all(low <= high for low, high in s) and all(a[1] + 1 < b[0] for a, b in pairwise(s))


@given(RANGES)
def test_ranges_in_any_order_become_one_set(ranges: list[tuple[int, int]]) -> None:
    made = charset.char_set(ranges)
    assert is_normal(made)
    assert members(made) == {p for p in POINTS if any(low <= p <= high for low, high in ranges)}
    assert all(charset.contains(made, point) == (point in members(made)) for point in POINTS)


@given(RANGES, RANGES)
def test_set_operations(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    a, b = charset.char_set(first), charset.char_set(second)
    expected = {
        charset.union(a, b): members(a) | members(b),
        charset.intersect(a, b): members(a) & members(b),
        charset.subtract(a, b): members(a) - members(b),
        charset.complement(a): set(POINTS) - members(a),
    }
    for made, wanted in expected.items():
        assert is_normal(made)
        assert members(made) == wanted
    assert charset.size(a) + charset.size(charset.complement(a)) == MAX_CODE_POINT + 1
    assert charset.complement(charset.complement(a)) == a


def test_equal_sets_are_equal_values() -> None:
    assert charset.of_chars("cab") == charset.of_chars("abcb") == ((97, 99),)
    assert charset.complement(charset.NONE) == charset.ANY
    assert charset.union() == charset.NONE

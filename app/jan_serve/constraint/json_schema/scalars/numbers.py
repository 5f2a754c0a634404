"""Sets of JSON numbers as unions of specs, with their intersection and their complement parts."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import ceil, floor
from typing import Final, NamedTuple

import msgspec

from jan_serve.constraint.automata.dfa import Dfa, explored, minimize, partition
from jan_serve.constraint.limits import MAX_PRODUCT_STATES, spend


class NumberSpec(msgspec.Struct, frozen=True):
    """Numbers between `low` and `high` (None: unbounded; open ends exclude the bound). `integer` True or False asks
    for a whole or a non-whole value. A value is a multiple of every member of `multiples` and of no member of
    `not_multiples`, and is not in `excluded`. `text` keeps how a constant was written."""

    low: Fraction | None = None
    low_open: bool = False
    high: Fraction | None = None
    high_open: bool = False
    integer: bool | None = None
    multiples: frozenset[Fraction] = frozenset()
    not_multiples: frozenset[Fraction] = frozenset()
    excluded: frozenset[Fraction] = frozenset()
    text: str | None = None

    def contains(self, value: Fraction) -> bool:
        """Whether one value satisfies the spec."""
        if self.low is not None and (value < self.low or (self.low_open and value == self.low)):
            return False
        if self.high is not None and (value > self.high or (self.high_open and value == self.high)):
            return False
        if self.integer is not None and self.integer != (value.denominator == 1):
            return False
        if value in self.excluded or any((value / m).denominator != 1 for m in self.multiples):
            return False
        return not any((value / m).denominator == 1 for m in self.not_multiples)

    def is_whole(self) -> bool:
        """Whether every value is an integer."""
        return self.integer is True or any(m.denominator == 1 for m in self.multiples)


ANY_NUMBER = (NumberSpec(),)


def point(value: Fraction, text: str | None = None) -> NumberSpec:
    """Exactly one value; `text` is its spelling in the schema where that is not the integer's."""
    return NumberSpec(low=value, high=value, text=text)


def intersect(a: NumberSpec, b: NumberSpec) -> NumberSpec | None:
    """Values of both; None where there are visibly none."""
    if a.integer is not None and b.integer is not None and a.integer != b.integer:
        return None
    low, low_open = a.low, a.low_open
    if b.low is not None and (low is None or b.low > low or (b.low == low and b.low_open)):
        low, low_open = b.low, b.low_open
    high, high_open = a.high, a.high_open
    if b.high is not None and (high is None or b.high < high or (b.high == high and b.high_open)):
        high, high_open = b.high, b.high_open
    result = NumberSpec(
        low,
        low_open,
        high,
        high_open,
        b.integer if a.integer is None else a.integer,
        a.multiples | b.multiples,
        a.not_multiples | b.not_multiples,
        a.excluded | b.excluded,
        a.text or b.text,
    )
    return None if is_empty(result) else result


def is_empty(spec: NumberSpec) -> bool:
    """Whether the bounds leave no value; exact for whole numbers without other conditions and for points."""
    if spec.integer is False and any(m.denominator == 1 for m in spec.multiples):
        return True
    if spec.low is None or spec.high is None:
        return False
    if spec.low == spec.high:
        return not spec.contains(spec.low)
    if spec.low > spec.high:
        return True
    first, last = whole_bounds(spec)
    if not spec.is_whole() or first is None or last is None or last - first > 64:
        return False
    return not any(spec.contains(Fraction(value)) for value in range(first, last + 1))


def whole_bounds(spec: NumberSpec) -> tuple[int | None, int | None]:
    """The smallest and the largest integer within the bounds."""
    first = last = None
    if spec.low is not None:
        first = floor(spec.low) + 1 if spec.low_open else ceil(spec.low)
    if spec.high is not None:
        last = ceil(spec.high) - 1 if spec.high_open else floor(spec.high)
    return first, last


def without(specs: tuple[NumberSpec, ...], value: Fraction) -> tuple[NumberSpec, ...]:
    """The specs with one value taken out."""
    without_it = (
        msgspec.structs.replace(spec, excluded=spec.excluded | {value}) if spec.contains(value) else spec
        for spec in specs
    )
    return tuple(spec for spec in without_it if not is_empty(spec))


class _State(NamedTuple):
    """Digits read, and how they compare with as many first digits of the least and of the greatest number."""

    read: int
    above: int
    below: int


_START: Final = _State(0, 0, 0)
_ZERO: Final = _State(-1, 0, 0)
_DEAD: Final = _State(-2, 0, 0)


@lru_cache(maxsize=256)
def whole_numbers(low: int, high: int) -> Dfa:
    """Texts of low..high, both at least 0, without zeros before the first digit."""
    least, most = str(low), str(high)
    cuts, symbols, members = partition([((c, c),) for c in range(0x30, 0x3A)])
    width = max(symbols) + 1

    def step(state: _State) -> tuple[list[_State], bool]:
        spend()
        targets = [_DEAD] * width
        if state.read >= 0:
            for digit, (symbol,) in enumerate(members):
                targets[symbol] = _after(state, digit, least, most)
        if state == _START:
            targets[members[0][0]] = _DEAD if low else _ZERO
        return targets, state == _ZERO or _is_within(state, least, most)

    return minimize(explored(cuts, symbols, _START, step, MAX_PRODUCT_STATES, "a number bound is too long"))


def _is_within(state: _State, least: str, most: str) -> bool:
    read, above, below = state
    if read < 1 or read < len(least) or (read == len(least) and above < 0):
        return False
    return read < len(most) or below <= 0


def _after(state: _State, digit: int, least: str, most: str) -> _State:
    read, above, below = state
    if read >= len(least):
        above = 1
    elif not above:
        above = _compare(digit, int(least[read]))
    if read == len(most):
        return _DEAD
    below = below or _compare(digit, int(most[read]))
    if len(least) == len(most) and (above < 0 or below > 0):
        return _DEAD
    return _State(read + 1, above, below)


def _compare(a: int, b: int) -> int:
    return (a > b) - (a < b)

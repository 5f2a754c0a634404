"""The decimal texts of a range of whole numbers, as an automaton.

An expression would nest once for each digit of a bound, and its branches would meet nowhere: states as many as the
square of the digits, before any are merged. A comparison with both bounds, digit by digit, needs a few for each digit.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from jan_serve.constraint.automata.dfa import Dfa, minimize, partition
from jan_serve.constraint.limits import spend


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
    index: dict[_State, int] = {_START: 0}
    order = [_START]
    rows: list[tuple[int, ...]] = []
    accepting: set[int] = set()
    for number, state in enumerate(order):
        spend()
        if state == _ZERO or _is_within(state, least, most):
            accepting.add(number)
        targets = [_DEAD] * width
        if state.read >= 0:
            for digit, (symbol,) in enumerate(members):
                targets[symbol] = _after(state, digit, least, most)
        if state == _START:
            targets[members[0][0]] = _DEAD if low else _ZERO
        row: list[int] = []
        for target in targets:
            if target not in index:
                index[target] = len(order)
                order.append(target)
            row.append(index[target])
        rows.append(tuple(row))
    return minimize(Dfa(cuts, symbols, tuple(rows), frozenset(accepting)))


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

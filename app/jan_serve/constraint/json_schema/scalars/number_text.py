"""The decimal texts of a number set, as a regular language. Plain decimals carry bounds digit by digit, as far as
their digits reach: a bound beyond is none. Exponents follow one digit before the point. Where a bound is as large or
small as writers spell with an exponent, they are compared to its last digit; elsewhere they are allowed where the
order of magnitude decides."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import ceil, floor, prod
from typing import Final, NamedTuple

from jan_serve.constraint.automata import dfa as automata
from jan_serve.constraint.automata.dfa import Dfa, partition
from jan_serve.constraint.json_schema.scalars.numbers import NumberSpec, whole_bounds, whole_numbers
from jan_serve.constraint.limits import MAX_PRODUCT_STATES, spend
from jan_serve.constraint.regex.language import full_regex
from jan_serve.constraint.regex.nfa import compile_dfa
from jan_serve.constraint.regex.syntax import EPSILON, Automaton, Chars, Loop, Regex, alternation, concat
from jan_serve.errors import GrammarTooComplex

# Digits where no bound of the schema counts them: those of a uint256, and of a double to its last place.
MAX_WHOLE = 78
MAX_FRACTION = 20
_BEYOND: Final = Fraction(10**MAX_WHOLE)
# Digits after the point of a divisor. More of a bound decide nothing between plain decimals.
_MAX_SCALE: Final = 30
# A whole number has to be written with all of its digits, also where a schema asks for more than MAX_WHOLE.
_MAX_DIGITS = 400
_UNWRITTEN: Final = Fraction(10**_MAX_DIGITS)
# Digits of a double's integers that are exact. Multiples up to here are worth all states that there are.
_EXACT_DIGITS: Final = 15
_DIGIT = Chars(((0x30, 0x39),))
_DIGITS = Loop(_DIGIT, 0, None)
_ZERO = Chars(((0x30, 0x30),))
_MINUS = Chars(((0x2D, 0x2D),))
_DOT = Chars(((0x2E, 0x2E),))
_EXPONENT = Chars(((0x45, 0x45), (0x65, 0x65)))
_TEN_DIGITS: Final = [((c, c),) for c in range(0x30, 0x3A)]
# The largest exponent that a double survives with a mantissa of one digit before the point.
_MAX_EXPONENT = 307
_LARGEST_DOUBLE: Final = Fraction("1.7976931348623157e308")
# From these orders of magnitude on, writers of JSON spell numbers with an exponent.
_SMALL, _LARGE = -5, 16
_TOO_MANY_DIGITS: Final = "multipleOf has too many digits to be checked digit by digit"


def _digit_range(low: int, high: int) -> Regex:
    return Chars(((0x30 + low, 0x30 + high),))


def _literal(text: str) -> Regex:
    return concat([Chars(((ord(c), ord(c)),)) for c in text]) if text else EPSILON


@lru_cache(maxsize=256)
def number_dfa(spec: NumberSpec) -> Dfa:
    """The texts of the values of `spec`; the automaton is empty where there are none. Raises GrammarTooComplex for
    large divisors, and if each value has hundreds of digits."""
    options = _whole(spec) if spec.is_whole() else _decimal(spec)
    result = compile_dfa(alternation(options)) if options else automata.from_words([])
    for multiple in sorted(spec.multiples):
        if multiple.numerator != 1 or multiple.denominator != 1:
            result = automata.intersect(result, _multiples_dfa(multiple))
    for multiple in sorted(spec.not_multiples):
        result = automata.intersect(result, automata.complement(_multiples_dfa(multiple)))
    if spec.not_multiples and not spec.is_whole():
        result = automata.intersect(result, _few_digits())
    if spec.integer is False:
        result = automata.intersect(result, _no_integers())
    for value in sorted(spec.excluded):
        texts = _spellings(value, near=not spec.is_whole())
        result = automata.intersect(result, automata.complement(compile_dfa(texts)))
    return result


@lru_cache(maxsize=1)
def _no_integers() -> Dfa:
    """Decimals that no double takes for an integer: with the digits before the point, the first 16 decide that."""
    options: list[str] = []
    for before in range(1, _EXACT_DIGITS + 1):
        most = _EXACT_DIGITS - before
        first = f"[1-8]|0{{1,{most}}}[1-9]|9{{1,{most}}}[0-8]" if most else "[1-8]"
        options.append(f"[0-9]{{{before}}}\\.(?:(?:{first})[0-9]*|9{{1,{most + 1}}}0*)")
    return compile_dfa(full_regex(f"-?(?:{'|'.join(options)})"))


@lru_cache(maxsize=1)
def _few_digits() -> Dfa:
    """Decimals that no double takes for another one of as few digits, and all integers."""
    options = (
        f"[0-9]{{{before}}}\\.[0-9]{{1,{_EXACT_DIGITS - before}}}" for before in range(1, _EXACT_DIGITS)
    )
    return compile_dfa(full_regex(f"-?(?:[0-9]+|{'|'.join(options)})"))


def _spellings(value: Fraction, *, near: bool) -> Regex:
    """Every plain decimal text of one value. near: and those with a point that a double takes for it."""
    whole, _, fraction = _plain(abs(value)).partition(".")
    tail = concat([_DOT, _literal(fraction), Loop(_ZERO, 0, None)])
    tail = tail if fraction else alternation([EPSILON, tail])
    options = [concat([_literal(whole), tail])]
    if near and value:
        places = max(1 + _EXACT_DIGITS - len(whole), 0)
        exact = abs(value) * 10**places
        for first in range(max(ceil(exact) - 1, 0), floor(exact) + (1 if exact.denominator == 1 else 2)):
            digits = str(first).rjust(places + 1, "0")
            point = len(digits) - places
            options.append(concat([_literal(f"{digits[:point]}.{digits[point:]}"), _DIGITS]))
    sign = EPSILON if value > 0 else _MINUS if value else alternation([EPSILON, _MINUS])
    return concat([sign, alternation(options)])


def _plain(value: Fraction) -> str:
    """The decimal text of a value of 0 or more."""
    scale = _scale(value)
    digits = str(value.numerator * 10**scale // value.denominator).rjust(scale + 1, "0")
    return f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits


def _scale(value: Fraction) -> int:
    """The digits after the point. Numbers of JSON are finite decimals."""
    scale, denominator = 0, value.denominator
    while 10**scale % denominator:
        scale += 1
    return scale


def _whole(spec: NumberSpec) -> list[Regex]:
    first, last = whole_bounds(spec)
    _check_digits(first or 0, -(last or 0))
    beyond = 10 ** _most_digits(spec)
    if last is not None and last >= _BEYOND:
        last = min(last, (beyond if (first or 0) < beyond else int(_UNWRITTEN)) - 1)
    if first is not None and first <= -_BEYOND:
        first = max(first, 1 - (beyond if -(last or 0) < beyond else int(_UNWRITTEN)))
    # Counted digits multiply the states of whatever else the value has to be.
    longest = None if spec.multiples or spec.not_multiples or spec.excluded else MAX_WHOLE
    options: list[Regex] = []
    if last is None or last >= 0:
        options += _integers(max(first or 0, 0), last, longest)
    if first is None or first < 0:
        low, high = 1 if last is None or last >= 0 else -last, None if first is None else -first
        options += [concat([_MINUS, item]) for item in _integers(low, high, longest)]
    return options


def _most_digits(spec: NumberSpec) -> int:
    """Digits of an integer in place of a bound that has more: fewer where each remainder is a state for each digit."""
    states = prod(m.numerator for m in (*spec.multiples, *spec.not_multiples))
    return max(min(MAX_WHOLE, MAX_PRODUCT_STATES // (2 * states)), _EXACT_DIGITS)


def _check_digits(*least: Fraction | int) -> None:
    """Raises GrammarTooComplex if a magnitude that each value has is too large to be written."""
    if max(least) >= _UNWRITTEN:
        raise GrammarTooComplex(f"a number bound has more than {_MAX_DIGITS} digits")


def _integers(low: int, high: int | None, longest: int | None = None) -> list[Regex]:
    """Texts of low..high, both at least 0. longest: digits of one without an upper bound, more by those of the lower
    one."""
    if high is None:
        width = len(str(low))
        longer = Loop(_DIGIT, width, None if longest is None else width + longest - 2)
        return [Automaton(whole_numbers(low, 10**width - 1)), concat([_digit_range(1, 9), longer])]
    return [] if high < low else [Automaton(whole_numbers(low, high))]


def _decimal(spec: NumberSpec) -> list[Regex]:
    """Both signs as ranges of magnitudes."""
    exponents = not (spec.multiples or spec.not_multiples or spec.excluded or spec.integer is False)
    options: list[Regex] = []
    zero = Fraction(0)
    if spec.high is None or spec.high > 0 or (spec.high == 0 and not spec.high_open):
        low, low_open = (zero, False) if spec.low is None or spec.low < 0 else (spec.low, spec.low_open)
        options += _magnitudes(low, low_open, spec.high, spec.high_open, exponents)
    if spec.low is None or spec.low < 0:
        low, low_open = (zero, True) if spec.high is None or spec.high >= 0 else (-spec.high, spec.high_open)
        high = None if spec.low is None else -spec.low
        negative = _magnitudes(low, low_open, high, spec.low_open, exponents)
        options += [concat([_MINUS, item]) for item in negative]
    if spec.low is None and spec.high is None and exponents:
        options += [_literal("-0"), _literal("-0.0")]
    if spec.text is not None and spec.low == spec.high:
        options.append(_literal(spec.text))
    return options


def _magnitudes(
    low: Fraction, low_open: bool, high: Fraction | None, high_open: bool, exponents: bool
) -> list[Regex]:
    """Texts of the numbers between two bounds of 0 or more."""
    options = _with_exponents(low, low_open, high, high_open) if exponents else []
    if low != high:
        if low >= _BEYOND and exponents:
            return options
        _check_digits(low)
        if high is not None and high >= _BEYOND:
            high, high_open = min((high, high_open), (_BEYOND if low < _BEYOND else _UNWRITTEN, True))
    if _scale(low) > _MAX_SCALE:
        low, low_open = Fraction(ceil(low * 10**_MAX_SCALE), 10**_MAX_SCALE), False
    if high is not None and _scale(high) > _MAX_SCALE:
        high, high_open = Fraction(floor(high * 10**_MAX_SCALE), 10**_MAX_SCALE), False
    if high is not None and (high < low or (high == low and (low_open or high_open))):
        return options
    whole, _, fraction = _plain(low).partition(".")
    last, _, last_fraction = ("", "", "") if high is None else _plain(high).partition(".")
    if whole == last:
        return [*options, concat([_literal(whole), _fraction(fraction, low_open, last_fraction, high_open)])]
    options.append(concat([_literal(whole), _fraction(fraction, low_open)]))
    if last:
        options.append(concat([_literal(last), _fraction("", False, last_fraction, high_open)]))
    if between := _integers(int(whole) + 1, int(last) - 1 if last else None):
        options.append(concat([alternation(between), _fraction("", False)]))
    return options


def _with_exponents(low: Fraction, low_open: bool, high: Fraction | None, high_open: bool) -> list[Regex]:
    """Texts of one digit other than 0 before the point, and an exponent."""
    mantissa = concat([_digit_range(1, 9), _fraction("", False)])
    if high is not None and high > _LARGEST_DOUBLE:
        high, high_open = _LARGEST_DOUBLE, False
    least = None if low == 0 else _order(low)
    most = None if high is None else _order(high) if high else -_MAX_EXPONENT - 1
    options: list[Regex] = []
    for order in sorted({order for order in (least, most) if order is not None}):
        if abs(order) <= _MAX_EXPONENT + 1 and not _SMALL < order < _LARGE:
            mantissas = _mantissas(Fraction(10) ** order, low, low_open, high, high_open)
            if mantissas:
                options.append(concat([alternation(mantissas), _exponents(order, order)]))
    # A mantissa has an order of magnitude less than these bounds.
    first = -_MAX_EXPONENT if least is None else least + 1
    last = _MAX_EXPONENT if most is None else min(most - 1, _MAX_EXPONENT)
    if least is not None and least > _SMALL:
        first = max(first, 0)
    if most is not None and most < _LARGE:
        last = min(last, -1)
    if max(first, -_MAX_EXPONENT) <= last:
        options.append(concat([mantissa, _exponents(max(first, -_MAX_EXPONENT), last)]))
    return options


def _mantissas(
    scale: Fraction, low: Fraction, low_open: bool, high: Fraction | None, high_open: bool
) -> list[Regex]:
    """Texts of 1 to less than 10 that are between the bounds if they are multiplied by `scale`."""
    if high is None and 10 * scale > _LARGEST_DOUBLE:
        high = _LARGEST_DOUBLE
    least = (low / scale, low_open) if low >= scale else (Fraction(1), False)
    top = (Fraction(10), True) if high is None or high >= 10 * scale else (high / scale, high_open)
    return _magnitudes(*least, *top, exponents=False)


def _order(value: Fraction) -> int:
    """The largest n with 10**n not above a positive value; one that no double has for larger ones."""
    if value > _LARGEST_DOUBLE:
        return _MAX_EXPONENT + 2
    return len(str(int(value))) - 1 if value >= 1 else -len(str(ceil(1 / value) - 1))


def _exponents(first: int, last: int) -> Regex:
    options: list[Regex] = []
    zeros = Loop(_ZERO, 0, 1)
    if last >= 0:
        sign = alternation([EPSILON, Chars(((0x2B, 0x2B),))])
        options.append(concat([sign, zeros, alternation(_integers(max(first, 0), last))]))
    if first < 0:
        options.append(concat([_MINUS, zeros, alternation(_integers(max(-last, 1), -first))]))
    return concat([_EXPONENT, alternation(options)])


class _Digits(NamedTuple):
    """Digits of a fraction: how many are compared, whether they are so far those of the lower and of the upper bound,
    and how many no bound decides."""

    place: int
    at_low: bool
    at_high: bool
    free: int = 0


@lru_cache(maxsize=256)
def _fraction(low: str, low_open: bool, high: str | None = None, high_open: bool = False) -> Regex:
    """The part after the integer: nothing, or a point and digits, between two digit strings. MAX_FRACTION digits follow
    those that the bounds decide."""
    top = high or ""
    cuts, symbols, members = partition(_TEN_DIGITS)
    width = max(symbols) + 1
    start, dead = _Digits(0, bool(low) or low_open, high is not None), _Digits(-1, False, False)

    def after(state: _Digits, digit: int) -> _Digits:
        place, at_low, at_high, free = state
        a, b = (int(bound[place : place + 1] or 0) for bound in (low, top))
        if (at_low and digit < a) or (at_high and digit > b):
            return dead
        found = at_low and digit == a and (low_open or place + 1 < len(low)), at_high and digit == b
        is_compared = (at_low and place < len(low)) or (at_high and place < len(top))
        free = 0 if is_compared or found != (at_low, at_high) else free + 1
        return dead if free > MAX_FRACTION else _Digits(min(place + 1, max(len(low), len(top))), *found, free)

    def step(state: _Digits) -> tuple[list[_Digits], bool]:
        spend()
        targets = [dead] * width
        if state != dead:
            for digit, (symbol,) in enumerate(members):
                targets[symbol] = after(state, digit)
        is_below = not state.at_high or state.place < len(top) or not high_open
        return targets, state not in (start, dead) and not state.at_low and is_below

    digits = automata.explored(cuts, symbols, start, step, MAX_PRODUCT_STATES, "a number bound is too long")
    text = concat([_DOT, Automaton(automata.minimize(digits))])
    may_be_empty = not (low or low_open) and (bool(top) or not high_open)
    return alternation([EPSILON, text]) if may_be_empty else text


@lru_cache(maxsize=64)
def _multiples_dfa(multiple: Fraction) -> Dfa:
    """Plain decimals whose value is a multiple: the state is the digits read so far, modulo the divisor. With multiple
    = n/d and d dividing 10**k, the value times 10**k has to be divisible by n * 10**k / d."""
    scale = _scale(multiple)
    if scale > _MAX_SCALE:
        raise GrammarTooComplex(f"multipleOf has more than {_MAX_SCALE} digits after the point")
    divisor = int(multiple * 10**scale)
    rest = divisor
    while not scale and rest % 10 == 0:
        rest //= 10
    return _scaled_multiples(divisor, scale) if rest == divisor else _with_zeros(rest, divisor // rest)


def _with_zeros(divisor: int, power: int) -> Dfa:
    """Multiples of `divisor` times a power of ten: those of `divisor`, with its zeros at their end."""
    whole = automata.intersect(_scaled_multiples(divisor, 0), compile_dfa(full_regex("-?[0-9]+")))
    zero = concat([alternation([EPSILON, _MINUS]), _literal("0")])
    digits = alternation([zero, concat([Automaton(whole), _literal(str(power)[1:])])])
    point = concat([_DOT, Loop(_ZERO, 0, None)])
    return compile_dfa(concat([digits, alternation([EPSILON, point])]))


def _scaled_multiples(divisor: int, scale: int) -> Dfa:
    if divisor * (scale + 2) > MAX_PRODUCT_STATES:
        raise GrammarTooComplex(_TOO_MANY_DIGITS)
    cuts, symbols, members = partition([((0x2D, 0x2D),), ((0x2E, 0x2E),), *_TEN_DIGITS])
    minus, dot, digits = members[0][0], members[1][0], [m[0] for m in members[2:]]
    width = max(symbols) + 1
    # (residue, digits after the point); None before the point. After `scale` digits only zeros may follow.
    dead = (-1, None)

    def step(state: tuple[int, int | None]) -> tuple[list[tuple[int, int | None]], bool]:
        residue, places = state
        targets: list[tuple[int, int | None]] = [dead] * width
        if residue < 0:
            return targets, False
        for value, symbol in enumerate(digits):
            if places is None or places < scale:
                targets[symbol] = (residue * 10 + value) % divisor, None if places is None else places + 1
            elif value == 0:
                targets[symbol] = (residue, places)
        if places is None:
            targets[dot] = (residue, 0)
            targets[minus] = (residue, None)
        return targets, residue * 10 ** (scale - (places or 0)) % divisor == 0

    return automata.minimize(
        automata.explored(cuts, symbols, (0, None), step, MAX_PRODUCT_STATES, _TOO_MANY_DIGITS)
    )

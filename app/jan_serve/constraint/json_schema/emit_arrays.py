"""Writes one array spec: positional items, counted items, `contains`, and uniqueness over finite item sets."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from jan_serve.constraint import ast
from jan_serve.constraint.json_schema.ir import ArraySpec, Conj, TypeSets
from jan_serve.constraint.json_schema.scalars import numbers, strings
from jan_serve.constraint.json_schema.unique_items import compared_item, compared_items, counted_set, row
from jan_serve.constraint.limits import spend
from jan_serve.errors import GrammarTooComplex, UnsupportedSchema

if TYPE_CHECKING:
    from jan_serve.constraint.json_schema.translate import Emitter

_MAX_UNIQUE_VALUES = 8
_MAX_STATES = 3000
_Counts: TypeAlias = tuple[int, tuple[int, ...]]
"""Items, and those that match each `contains`."""


def array_expr(emit: Emitter, spec: ArraySpec, hint: str) -> ast.Expr:
    """The text of the arrays of one spec. Raises UnsupportedSchema where uniqueness cannot be decided."""
    if spec == ArraySpec() and hint != "array":
        return emit.shared("array")
    whole, spec = spec, emit.expander.algebra.trimmed(spec)
    if spec.high is not None and spec.high < spec.low:
        return ast.NEVER
    may_be_empty = spec.low == 0 and not any(c.low for c in spec.contains)
    write = _compared if whole in emit.held else _items
    return emit.brackets("[", write(emit, whole, spec, hint), "]", may_be_empty=may_be_empty)


def _items(emit: Emitter, whole: ArraySpec, spec: ArraySpec, hint: str) -> ast.Expr:
    """One item or more. whole: the spec before it was trimmed."""
    if spec.unique:
        if not _unique_by_itself(emit, spec):
            return _unique_items(emit, whole, spec, hint)
        spec = msgspec.structs.replace(spec, unique=False)
    if spec.contains:
        return _counted_items(emit, spec, hint, lambda conj: emit.value(conj, f"{hint}-item"))
    return _plain_items(emit, spec, hint)


def _plain_items(emit: Emitter, spec: ArraySpec, hint: str) -> ast.Expr:
    if spec.high == 0:
        return ast.NEVER
    conjs = [*spec.prefix]
    if spec.high is None or spec.high > len(conjs):
        conjs.append(spec.rest)
    return row(emit, spec, [emit.value(conj, f"{hint}-item") for conj in conjs], hint)


def _counted_items(
    emit: Emitter, spec: ArraySpec, hint: str, written: Callable[[Conj], ast.Expr]
) -> ast.Expr:
    """One rule per (number of items, number of matches per `contains`), each capped where it no longer matters."""
    caps = tuple(c.low if c.high is None else c.high + 1 for c in spec.contains)
    last = max(len(spec.prefix), spec.low, 1, *(c.start for c in spec.contains), spec.high or 0)
    if (last + 1) * prod(cap + 1 for cap in caps) > _MAX_STATES:
        raise GrammarTooComplex("minContains, maxContains, minItems and maxItems multiply to too many states")

    def body(state: _Counts, follow: Callable[[_Counts], ast.Expr]) -> ast.Expr:
        index, counts = state
        options: list[ast.Expr] = []
        if index >= max(spec.low, 1) and all(n >= c.low for n, c in zip(counts, spec.contains, strict=True)):
            options.append(ast.EMPTY)
        if spec.high is None or index < spec.high:
            for conj, after in _classified(emit, spec, index, counts):
                separator = emit.comma() if index else ast.EMPTY
                options.append(
                    ast.sequence([separator, written(conj), follow((min(index + 1, last), after))])
                )
        return ast.choice(options)

    return emit.rules.states(f"{hint}-items", (0, (0,) * len(caps)), body)


def _classified(
    emit: Emitter, spec: ArraySpec, index: int, counts: tuple[int, ...]
) -> list[tuple[Conj, tuple[int, ...]]]:
    """The next item, split by which `contains` it satisfies, with the counts after it."""
    conjoin = emit.expander.terms.conjoin
    options: list[tuple[Conj, tuple[int, ...]]] = [(spec.item(index), ())]
    for number, c in enumerate(spec.contains):
        count = counts[number]
        settled = c.high is None and count >= c.low
        if settled or index < c.start:
            options = [(conj, (*after, count)) for conj, after in options]
            continue
        misses = _negated(emit, c.conj, required=c.high is not None)
        split: list[tuple[Conj, tuple[int, ...]]] = []
        for conj, after in options:
            if c.high is None or count < c.high:
                split.append((conjoin(conj, c.conj), (*after, count + 1)))
            split.append((conjoin(conj, misses), (*after, count)))
        options = split
        spend(len(options))
    return [(conj, after) for conj, after in options if not emit.expander.is_nothing(conj)]


def _negated(emit: Emitter, conj: Conj, *, required: bool) -> Conj:
    """The items that do not match. Without an upper count an overlap does no harm, so "anything" may stand in."""
    if len(conj) <= 1:
        opposite = emit.expander.terms.negated(conj)
        try:
            emit.expander.expand(opposite)
        except (UnsupportedSchema, GrammarTooComplex):
            if required:
                raise
        else:
            return opposite
    if required:
        raise GrammarTooComplex("maxContains over several combined schemas")
    return ()


def _unique_by_itself(emit: Emitter, spec: ArraySpec) -> bool:
    """Whether the items differ whatever they are: at most one, or positional and pairwise disjoint."""
    if spec.high is None or spec.high > _MAX_UNIQUE_VALUES + 1:
        return False
    terms, expander = emit.expander.terms, emit.expander
    return all(
        expander.is_nothing(terms.conjoin(a, b)) for a, b in combinations(map(spec.item, range(spec.high)), 2)
    )


def _unique_items(emit: Emitter, whole: ArraySpec, spec: ArraySpec, hint: str) -> ast.Expr:
    """One rule per set of values used so far; only for few values."""
    if spec.contains:
        if emit.compares_items:
            return _compared(emit, whole, spec, hint)
        raise UnsupportedSchema("", "uniqueItems", "together with contains")
    keys: dict[object, ast.Expr] = {}
    for conj in (*spec.prefix, spec.rest):
        if emit.expander.is_nothing(conj):
            continue
        sets = emit.expander.expand(conj)
        found = _finite_values(emit, sets, hint)
        keys |= found or {}
        if found is None or len(keys) > _MAX_UNIQUE_VALUES:
            if emit.compares_items:
                return _compared(emit, whole, spec, hint)
            reason = f"only decidable for items of at most {_MAX_UNIQUE_VALUES} values"
            raise UnsupportedSchema("", "uniqueItems", reason)
    order = list(keys)
    high = len(order) if spec.high is None else min(spec.high, len(order))
    allowed = [
        set(_finite_values(emit, emit.expander.expand(spec.item(index)), hint) or {}) for index in range(high)
    ]

    def body(used: int, follow: Callable[[int], ast.Expr]) -> ast.Expr:
        count = used.bit_count()
        options: list[ast.Expr] = []
        if count >= max(spec.low, 1):
            options.append(ast.EMPTY)
        for number, key in enumerate(order):
            if count < high and not used >> number & 1 and key in allowed[count]:
                after = follow(used | 1 << number)
                options.append(ast.sequence([emit.comma() if count else ast.EMPTY, keys[key], after]))
        return ast.choice(options)

    return emit.rules.states(f"{hint}-unique", 0, body)


def _compared(emit: Emitter, whole: ArraySpec, spec: ArraySpec, hint: str) -> ast.Expr:
    emit.compared_at = emit.compared_at or emit.conj
    if spec.contains:
        emit.unique[whole] = (counted_set(emit, spec),)
        return _counted_items(emit, spec, hint, lambda conj: compared_item(emit, conj, hint))
    items, emit.unique[whole] = compared_items(emit, spec, hint)
    return items


def _finite_values(emit: Emitter, sets: TypeSets, hint: str) -> dict[object, ast.Expr] | None:
    """The values of a small set with their texts, by JSON equality; None where the set is large or open."""
    if sets.array or sets.object or not isinstance(sets.string, strings.OneOfStrings):
        return None
    found: dict[object, ast.Expr] = {}
    if sets.null:
        found["null", None] = ast.Terminal(ast.Literal("null"))
    for bit, text in ((1, "false"), (2, "true")):
        if sets.boolean & bit:
            found["boolean", text] = ast.Terminal(ast.Literal(text))
    for spec in sets.number:
        values = _finite_numbers(spec)
        if values is None:
            return None
        for value in values:
            found["number", value] = emit.number(numbers.intersect(spec, numbers.point(value)) or spec, hint)
    for text in sets.string.values:
        found["string", text] = emit.string(strings.OneOfStrings((text,)), hint)
    return found


def _finite_numbers(spec: numbers.NumberSpec) -> list[Fraction] | None:
    if spec.low is not None and spec.low == spec.high:
        return [spec.low]
    first, last = numbers.whole_bounds(spec)
    if not spec.is_whole() or first is None or last is None or last - first > _MAX_UNIQUE_VALUES:
        return None
    return [value for n in range(first, last + 1) if spec.contains(value := Fraction(n))]

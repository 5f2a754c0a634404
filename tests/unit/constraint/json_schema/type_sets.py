"""What the IR of the JSON Schema translation means, by its definition: terms are judged by jsonschema."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any, cast

from jan_serve.constraint.json_schema import strings
from jan_serve.constraint.json_schema.ir import ArraySpec, Conj, NameRule, ObjectSpec, TypeSets
from jan_serve.constraint.json_schema.strings import StringSet
from tests.unit.constraint.json_schema.schemas import is_valid


def holds(conj: Conj, value: Any) -> bool:
    """Whether a value satisfies every term. Their schemas hold no references."""
    return all(is_valid(term.node.schema, value) is term.positive for term in conj)


def allows(sets: TypeSets, value: Any) -> bool:
    """Whether a value is in the set of its type."""
    if value is None:
        return sets.null
    if isinstance(value, bool):
        return bool(sets.boolean & (2 if value else 1))
    if isinstance(value, int | float):
        return any(spec.contains(Fraction(value)) for spec in sets.number)
    if isinstance(value, str):
        return in_set(sets.string, value)
    if isinstance(value, list):
        return any(is_array_of(spec, cast("list[Any]", value)) for spec in sets.array)
    return any(is_object_of(spec, value) for spec in sets.object)


def in_set(s: StringSet, text: str) -> bool:
    """Whether a text is in a string set. Formats are left to their own tests."""
    match s:
        case strings.AnyString():
            return True
        case strings.OneOfStrings(values):
            return text in values
        case strings.Length(low, high):
            return low <= len(text) and (high is None or len(text) <= high)
        case strings.Pattern(pattern):
            return bool(re.search(pattern.replace("$", "\\Z"), text, re.ASCII))
        case strings.AllOf(items):
            return all(in_set(item, text) for item in items)
        case strings.SomeOf(items):
            return any(in_set(item, text) for item in items)
        case strings.NotIn(item):
            return not in_set(item, text)
        case strings.Format():
            return strings.string_dfa(s).matches(text)


def is_array_of(spec: ArraySpec, items: list[Any]) -> bool:
    if not _within(len(items), spec.low, spec.high):
        return False
    for index, item in enumerate(items):
        if not holds(spec.prefix[index] if index < len(spec.prefix) else spec.rest, item):
            return False
    for c in spec.contains:
        if not _within(sum(holds(c.conj, item) for item in items[c.start :]), c.low, c.high):
            return False
    return not spec.unique or is_valid({"uniqueItems": True}, items)


def is_object_of(spec: ObjectSpec, members: dict[str, Any]) -> bool:
    if not _within(len(members), spec.low, spec.high) or not all(name in members for name in spec.required):
        return False
    for name, value in members.items():
        listed = spec.props.get(name)
        rules = [rule.conj for rule in spec.rules if in_set(rule.names, name)]
        if not all(holds(conj, value) for conj in (rules if listed is None else [listed])):
            return False
    return all(any(_settles(rule, name, value) for name, value in members.items()) for rule in spec.exists)


def _settles(rule: NameRule, name: str, value: Any) -> bool:
    return in_set(rule.names, name) and holds(rule.conj, value)


def _within(count: int, low: int, high: int | None) -> bool:
    return low <= count and (high is None or count <= high)

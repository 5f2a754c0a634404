"""Writes one object spec. Each listed property comes at most once. In order, other names come anywhere after the last
one that must be there. A name that is not listed may repeat: no grammar can compare names. The engine sees to it that
none does; in a grammar alone, what needs different names is refused. Where names may run out, all come in any order
and are counted. So do the optional ones of many in any order: a rule cannot remember each."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TYPE_CHECKING

import msgspec

from jan_serve.constraint import ast
from jan_serve.constraint.ast import Mode
from jan_serve.constraint.automata import dfa as automata
from jan_serve.constraint.automata.dfa import count_words
from jan_serve.constraint.json_schema import unlisted_names
from jan_serve.constraint.json_schema.ir import TRUE, NameRule, ObjectSpec
from jan_serve.constraint.json_schema.scalars import strings
from jan_serve.constraint.json_schema.scalars.strings import ANY_STRING, StringSet
from jan_serve.constraint.rules import RuleBuilder
from jan_serve.errors import GrammarTooComplex, UnsupportedSchema

if TYPE_CHECKING:
    from jan_serve.constraint.json_schema.translate import Emitter

_MAX_STATES = 4000
_MAX_NAMES = 10_000
"""Most names of a finite set in one object."""
_LONG_ROW = 8
"""Executors recurse into a rule at the first reference to it. So a row of rules of which each refers to the next one is
referred to every so many rules, from its end on."""
_MAX_EXISTS = 4
_BITS = 45
"""What a rule remembers beside the layout: a bit for each listed member, and the number of members where it matters."""


class Field(msgspec.Struct, frozen=True):
    """One listed property: its text (name, colon, value), whether it must be there, and whether other names come only
    after it, in order. few: it is one of those that a pattern names."""

    entry: ast.Expr
    required: bool
    leads: bool = False
    few: bool = False


class Shape(msgspec.Struct, frozen=True):
    """An object ready to be written: listed fields and other entries. `wanted[m - 1]` is the entry that settles the
    conditions in the bit mask m; all `conditions` have to be settled. any_order: whether all entries come in any
    order, whatever that of the request."""

    fields: list[Field]
    extra: ast.Expr
    wanted: list[ast.Expr]
    conditions: int
    low: int
    high: int | None
    any_order: bool = False

    def may_be_empty(self) -> bool:
        return not (self.low or self.conditions or any(field.required for field in self.fields))


def object_expr(emit: Emitter, spec: ObjectSpec, hint: str) -> ast.Expr:
    """The text of the objects of one spec."""
    if spec == ObjectSpec() and hint != "object":
        return emit.shared("object")
    options: list[ast.Expr] = []
    few = unlisted_names.few_names(emit.expander, spec)
    spec = msgspec.structs.replace(spec, props=spec.props | few)
    for settled in _settle_exists(emit, spec):
        shape = _shape(emit, settled, frozenset(spec.required), hint, few)
        counted = bool(shape.wanted) or _is_counted(shape)
        in_order = not emit.any_order and not shape.any_order and bool(shape.fields)
        if few and in_order and not shape.wanted and emit.mode is not Mode.PRINTED:
            members = _few_last(emit, shape, hint, counted=counted)
        elif counted and (shape.wanted or in_order):
            members = _counted_members(emit, shape, hint)
        else:
            members = listed_members(emit, shape, hint)
        options.append(emit.brackets("{", members, "}", may_be_empty=shape.may_be_empty()))
    return ast.choice(options)


def listed_members(emit: Emitter, shape: Shape, hint: str) -> ast.Expr:
    """One member or more, which no rule counts."""
    if emit.any_order or shape.any_order or not shape.fields:
        others_last = emit.others_last and not shape.any_order
        return members_in_any_order(emit.rules, shape, hint, comma=emit.comma(), others_last=others_last)
    return plain_members(emit.rules, shape, hint, comma=emit.comma())


def _few_last(emit: Emitter, shape: Shape, hint: str, *, counted: bool) -> ast.Expr:
    """The listed members in order, then those that a pattern has few of, in any; all in any where they are counted."""

    def in_any_order(shape: Shape) -> ast.Expr:
        return members_in_any_order(emit.rules, shape, hint, comma=emit.comma(), others_last=False)

    if counted:
        return in_any_order(shape)
    listed, few = (
        msgspec.structs.replace(shape, fields=[field for field in shape.fields if field.few is own])
        for own in (False, True)
    )
    last = in_any_order(few)
    if not listed.fields:
        return last
    last = emit.rules.define(f"{hint}-few", last)
    first = plain_members(emit.rules, listed, hint, comma=emit.comma())
    options = [ast.sequence([first, ast.optional(ast.sequence([emit.comma(), last]))])]
    return ast.choice([*options, last] if listed.may_be_empty() else options)


def _least(fields: list[Field]) -> int:
    """The minimum number of properties; any positive number counts as one."""
    return sum(field.required for field in fields)


def _settle_exists(emit: Emitter, spec: ObjectSpec) -> list[ObjectSpec]:
    """Split each "some property ..." into: this listed one, that listed one, or an unlisted one."""
    done = [msgspec.structs.replace(spec, exists=())]
    for exists in spec.exists:
        split: list[ObjectSpec] = []
        for own in done:
            split += emit.expander.algebra.by_property(own, exists)
            split.append(msgspec.structs.replace(own, exists=(*own.exists, exists)))
        done = split
        if len(done) > unlisted_names.MAX_NAME_CLASSES:
            raise GrammarTooComplex("too many ways to satisfy a condition on some property")
    return done


def _shape(
    emit: Emitter, spec: ObjectSpec, leading: frozenset[str], hint: str, few: Container[str] = ()
) -> Shape:
    expander = emit.expander
    names = dict.fromkeys([*spec.props, *spec.required])
    required = set(spec.required)
    fields: list[Field] = []
    for name in names:
        conj = expander.algebra.lookup(spec, name)
        if name not in required and expander.is_nothing(conj):
            continue
        entry = ast.sequence([emit.key(name), emit.colon(), emit.value(conj, name)])
        fields.append(Field(entry, name in required, name in leading, name in few))
    listed = tuple(names)
    extra = ast.choice(_extras(emit, spec, listed, hint))
    if len(spec.exists) > _MAX_EXISTS:
        raise GrammarTooComplex("too many conditions on some property at once")
    wanted = [_wanted_entry(emit, spec, listed, hint, mask) for mask in range(1, 1 << len(spec.exists))]
    shape = Shape(fields, extra, wanted, len(spec.exists), spec.low, spec.high)
    if emit.mode.compares:
        return _with_compared_names(emit, spec, shape, few)
    if extra != ast.NEVER:
        emit.needs_comparison = emit.needs_comparison or _needs_comparison(spec)
    return shape


def _with_compared_names(emit: Emitter, spec: ObjectSpec, shape: Shape, few: Container[str]) -> Shape:
    """The shape with as many members as there are names, where these may run out: the executor knows which are left.
    few: as in `object_expr`."""
    crowded = _is_crowded(emit, spec, shape)
    is_closed = shape.extra == ast.NEVER
    if emit.mode is Mode.PRINTED or (is_closed and not crowded):
        return shape
    emit.names_repeat = True
    names = automata.from_words(()) if is_closed else unlisted_names.names_that_run_out(emit.expander, spec)
    most = len(shape.fields)
    if crowded:
        emit.is_crowded = True
        shape = _with_few_fields(shape)
    if names is None:
        return shape
    props = {name: conj for name, conj in spec.props.items() if name not in few}
    listed = [name for name in {*spec.props, *spec.required} if _may_be(emit, spec, name)]
    all_names = automata.unite(names, automata.from_words(listed))
    emit.counted_names.append((msgspec.structs.replace(spec, props=props), all_names))
    emit.compared_at = emit.compared_at or emit.conj
    if automata.longest_word(names) is not None:
        most += min(count_words(names, _MAX_NAMES), _MAX_NAMES)
        high = most if shape.high is None else min(shape.high, most)
        shape = msgspec.structs.replace(shape, high=high)
    return msgspec.structs.replace(shape, any_order=True)


def _may_be(emit: Emitter, spec: ObjectSpec, name: str) -> bool:
    return name in spec.required or not emit.expander.is_nothing(emit.expander.algebra.lookup(spec, name))


def _is_crowded(emit: Emitter, spec: ObjectSpec, shape: Shape) -> bool:
    """Whether there are more listed members than a rule can remember, of which the executor compares the names."""
    count, needed = len(shape.fields), _least(shape.fields)
    return (
        emit.crowds
        and emit.any_order
        and not shape.wanted
        and count > (_room(shape) if _is_counted(shape) else _BITS)
        and (needed <= _room(shape) or (needed == count and shape.extra == ast.NEVER))
        and all(
            unlisted_names.has_value(emit.expander, emit.expander.algebra.lookup(spec, name))
            for name in {*spec.props, *spec.required}
            if _may_be(emit, spec, name)
        )
        and (shape.extra == ast.NEVER or unlisted_names.takes_any_name(emit.expander, spec))
    )


def _is_counted(shape: Shape) -> bool:
    return shape.low > _least(shape.fields) or shape.high is not None


def _room(shape: Shape) -> int:
    """The bits that the number of members leaves."""
    return _BITS - max(shape.low, shape.high or 0, len(shape.fields)).bit_length()


def _with_few_fields(shape: Shape) -> Shape:
    """The optional members among the others; all of them where all are required, which their number says then."""
    needed = _least(shape.fields)
    kept = [field for field in shape.fields if field.required and needed <= _room(shape)]
    others = [field.entry for field in shape.fields if field not in kept]
    low = shape.low if kept else max(shape.low, needed)
    return msgspec.structs.replace(shape, fields=kept, extra=ast.choice([*others, shape.extra]), low=low)


def _needs_comparison(spec: ObjectSpec) -> UnsupportedSchema | None:
    """Why the names of an object must differ. A reader keeps one value of a name that is there twice: so the other
    names count as one, and none of them settles a condition on its value."""
    if spec.low > len(set(spec.required)) + 1:
        reason = "names that are not listed cannot be counted where they may repeat"
        return UnsupportedSchema("", "minProperties", reason)
    if any(exists.conj != TRUE for exists in spec.exists):
        reason = "the value of some property cannot be held where names may repeat"
        return UnsupportedSchema("", "additionalProperties", reason)
    return None


def _wanted_entry(emit: Emitter, spec: ObjectSpec, listed: tuple[str, ...], hint: str, mask: int) -> ast.Expr:
    """An unlisted entry that settles all conditions of the mask at once."""
    names, conj = ANY_STRING, TRUE
    for number, exists in enumerate(spec.exists):
        if mask >> number & 1:
            names = strings.intersect(names, exists.names)
            conj = emit.expander.terms.conjoin(conj, exists.conj)
    return ast.choice(_extras(emit, spec, listed, hint, NameRule(names, conj)))


def _extras(
    emit: Emitter, spec: ObjectSpec, listed: tuple[str, ...], hint: str, wanted: NameRule | None = None
) -> list[ast.Expr]:
    """Entries with unlisted names, one per class of names that obey the same rules."""
    terms = emit.expander.terms
    start = (ANY_STRING, TRUE) if wanted is None else (wanted.names, wanted.conj)
    classes = unlisted_names.name_classes(terms, spec.rules, *start)
    entries: list[ast.Expr] = []
    for names, conj in classes:
        if conj == terms.false or emit.expander.is_nothing(conj):
            continue
        name = _name_expr(emit, unlisted_names.without_listed(names, listed), listed, hint)
        if name != ast.NEVER:
            entries.append(ast.sequence([name, emit.colon(), emit.value(conj, f"{hint}-extra")]))
    return entries


def _name_expr(emit: Emitter, names: StringSet, listed: tuple[str, ...], hint: str) -> ast.Expr:
    if names == ANY_STRING:
        return emit.name_outside(ANY_STRING, listed, hint) if listed else emit.name(ANY_STRING, hint)
    if isinstance(names, strings.NotIn) and isinstance(names.item, strings.OneOfStrings):
        return emit.name_outside(ANY_STRING, tuple(dict.fromkeys(names.item.values + listed)), hint)
    if strings.is_empty(names):
        return ast.NEVER
    taken = tuple(name for name in listed if strings.contains(names, name))
    if not taken:
        return emit.name(names, f"{hint}-name")
    if isinstance(names, strings.OneOfStrings):
        left = strings.OneOfStrings(tuple(value for value in names.values if value not in taken))
        return emit.name(left, f"{hint}-name") if left.values else ast.NEVER
    return emit.name_outside(names, taken, hint)


def plain_members(rules: RuleBuilder, shape: Shape, hint: str, *, comma: ast.Expr) -> ast.Expr:
    """One member or more, without counting. Up to the first field that must be there, one rule per field has the rows
    that begin with it or with a later one; the rest is one row. comma: between two members."""
    fields, extra = shape.fields, shape.extra
    first_required = next((i for i, field in enumerate(fields) if field.required), None)
    starts = len(fields) if first_required is None else first_required + 1
    open_from = _open_from(shape)
    may_begin = extra != ast.NEVER and open_from < 0
    if may_begin and fields:
        extra = rules.define(f"{hint}-other", extra)
    others: ast.Expr = ast.repeat(ast.sequence([comma, extra]), 0, None)
    if others != ast.EMPTY and len(fields) - open_from > 1:
        others = rules.define(f"{hint}-others", others)
    tail: ast.Expr = ast.EMPTY
    rows: ast.Expr = ast.NEVER
    late: list[ast.Expr] = []
    for index in range(len(fields) - 1, -1, -1):
        field = fields[index]
        entry = ast.sequence([field.entry, others]) if index >= open_from else field.entry
        if index >= starts:
            member = ast.sequence([comma, entry])
            tail = ast.sequence([member if field.required else ast.optional(member), tail])
            continue
        rows = ast.choice([ast.sequence([entry, tail]), rows])
        if index > 0 or may_begin:
            rows = rules.define(f"{hint}-members", rows)
            more = ast.sequence([comma, rows])
            tail = ast.optional(more) if first_required is None else more
        if (starts - index) % _LONG_ROW == 0 and index > 0:
            late.append(rows)
    # The last ones first. They are among the rows that begin with any field.
    return ast.choice([*late, rows, ast.sequence([extra, others, tail]) if may_begin else ast.NEVER])


def _open_from(shape: Shape) -> int:
    """The index of the field that other names come after; -1 if there is none."""
    return max((index for index, field in enumerate(shape.fields) if field.leads), default=-1)


def _cap(shape: Shape) -> int:
    """The number of members from which on they need not be counted."""
    count = len(shape.fields)
    cap = max(shape.low, 1) if shape.high is None else max(shape.high, 1)
    if (count + 1) * (min(cap, count + shape.low + 1) + 1) << shape.conditions > _MAX_STATES:
        reason = "minProperties, maxProperties and the listed properties multiply to too many states"
        raise GrammarTooComplex(reason)
    return cap


def members_in_any_order(
    rules: RuleBuilder, shape: Shape, hint: str, *, comma: ast.Expr, others_last: bool
) -> ast.Expr:
    """One member or more. comma: between two. others_last: others follow listed ones where one is required."""
    if others_last and shape.extra != ast.NEVER and _least(shape.fields) and not _is_counted(shape):
        # A weak model that may begin with names of its own never comes to the required ones.
        other = rules.define(f"{hint}-other", shape.extra)
        listed = msgspec.structs.replace(shape, extra=ast.NEVER)
        members = members_in_any_order(rules, listed, hint, comma=comma, others_last=False)
        return ast.sequence([members, ast.repeat(ast.sequence([comma, other]), 0, None)])
    return ast.unordered(
        ast.Unordered(
            tuple([rules.define(f"{hint}-member", field.entry) for field in shape.fields]),
            tuple([field.required for field in shape.fields]),
            comma,
            shape.extra if shape.extra == ast.NEVER else rules.define(f"{hint}-other", shape.extra),
            shape.low,
            shape.high,
        )
    )


def _counted_members(emit: Emitter, shape: Shape, hint: str) -> ast.Expr:
    """One member or more: one rule per (next field, members so far, wanted entries found), members capped where they no
    longer matter."""
    fields = shape.fields
    cap = _cap(shape)
    all_found = (1 << shape.conditions) - 1
    open_from = _open_from(shape)
    members = [emit.rules.define(f"{hint}-member", field.entry) for field in fields]
    extra = shape.extra if shape.extra == ast.NEVER else emit.rules.define(f"{hint}-other", shape.extra)
    wanted = [w if w == ast.NEVER else emit.rules.define(f"{hint}-wanted", w) for w in shape.wanted]

    def body(state: tuple[int, int, int], follow: Callable[[tuple[int, int, int]], ast.Expr]) -> ast.Expr:
        index, count, found = state
        comma = emit.comma() if count else ast.EMPTY
        full = shape.high is not None and count >= shape.high
        options: list[ast.Expr] = []
        if index < len(fields):
            if not full:
                after = follow((index + 1, min(count + 1, cap), found))
                options.append(ast.sequence([comma, members[index], after]))
            if not fields[index].required:
                options.append(follow((index + 1, count, found)))
        if index <= open_from:
            return ast.choice(options)
        for mask, entry in enumerate([] if full else [extra, *wanted]):
            if entry != ast.NEVER and (mask == 0 or mask & ~found):
                after = follow((index, min(count + 1, cap), found | mask))
                options.append(ast.sequence([comma, entry, after]))
        if index == len(fields) and count >= max(shape.low, 1) and found == all_found:
            options.append(ast.EMPTY)
        return ast.choice(options)

    return emit.rules.states(f"{hint}-members", (0, 0, 0), body)

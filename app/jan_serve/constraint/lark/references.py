"""Cycles, depths and names of the rules of a printed grammar. llguidance recurses for each reference and each group.
It compiles each rule once, at the first reference to it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, TypeAlias

from msgspec.structs import replace

from jan_serve.constraint import ast
from jan_serve.constraint.lark.notation import LAZY, PARAMETER
from jan_serve.constraint.limits import MAX_REFERENCE_DEPTH
from jan_serve.constraint.rules import references
from jan_serve.core.constraint import CompiledGrammar, GrammarPiece, SpecialText
from jan_serve.errors import GrammarTooComplex
from jan_serve.text.lark_text import PIECES, depths, named_in

Uses: TypeAlias = Mapping[str, Sequence[tuple[str, int]]]
"""Per rule, the rules it refers to in textual order, each with the number of groups around the reference."""


def reference_depth(uses: Uses, root: str) -> int:
    """The maximum number of rules and groups open at the same time. A rule met before adds nothing."""
    return max(depth for _, depth in depths(uses.__getitem__, root))


def resting_places(uses: Uses, root: str, depth: int) -> list[str]:
    """Rules for the root to refer to first, in this order, so that about `depth` rules and groups are open at once. A
    cycle longer than that, and not through the root, is still followed to its end."""
    found: list[str] = []
    heights = {root: 1}
    path = [(root, 0, iter(uses[root]))]
    while path:
        name, groups, rest = path[-1]
        target = next((use for use in rest if use[0] not in heights), None)
        if target is not None:
            heights[target[0]] = 1
            path.append((*target, iter(uses[target[0]])))
            continue
        path.pop()
        if path:
            height = heights[name] + groups
            if height >= depth:
                found.append(name)
                height = 0
            above = path[-1][0]
            heights[above] = max(heights[above], height + 1)
    return found


NOTHING: Final = "/[^\\s\\S]/"
"""A terminal that no text has."""


def shallow_start(lines: list[str]) -> str:
    """The start rule, which is the first line, where needed with an alternative that no text takes: it refers to rules
    far down, so that no chain of references is long when llguidance follows it."""
    if sum(1 + line.count("(") for line in lines) <= MAX_REFERENCE_DEPTH:
        return lines[0]  # a path has each rule once, with the groups around one of its references
    headed = [line.split(": ", 1) for line in lines]
    bodies = {header.removesuffix(PARAMETER).removesuffix(LAZY): body for header, body in headed}
    arguments = {header.removesuffix(PARAMETER): "::0" for header, _ in headed if header.endswith(PARAMETER)}
    uses = {name: named_in(PIECES.findall(body), bodies) for name, body in bodies.items()}
    if reference_depth(uses, "start") <= MAX_REFERENCE_DEPTH:
        return lines[0]
    first = resting_places(uses, "start", MAX_REFERENCE_DEPTH // 2)
    uses["start"] = [*((name, 1) for name in first), *uses["start"]]
    if reference_depth(uses, "start") > MAX_REFERENCE_DEPTH:
        raise GrammarTooComplex(f"rules refer to one another deeper than {MAX_REFERENCE_DEPTH} levels")
    calls = [name + arguments.get(name, "") for name in first]
    return f"start: {NOTHING} ({' | '.join(calls)}) | {bodies['start']}"


def components(root: str, targets_of: Callable[[str], Iterable[str]]) -> list[list[str]]:
    """The strongly connected nodes below `root`, innermost first (Tarjan, iterative)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    groups: list[list[str]] = []
    work: list[tuple[str, list[str]]] = []

    def enter(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        on_stack.add(name)
        work.append((name, list(targets_of(name))))

    enter(root)
    while work:
        name, targets = work[-1]
        if targets:
            target = targets.pop()
            if target not in index:
                enter(target)
            elif target in on_stack:
                low[name] = min(low[name], index[target])
            continue
        work.pop()
        if work:
            low[work[-1][0]] = min(low[work[-1][0]], low[name])
        if low[name] == index[name]:
            cut = stack.index(name)
            groups.append(stack[cut:])
            on_stack.difference_update(stack[cut:])
            del stack[cut:]
    return groups


# Elimination may square the number of coefficients; beyond this a lexer gains nothing.
_MAX_RULES = 150
_MAX_EDGES = 2500

Row: TypeAlias = dict[str | None, list[str]]
"""The alternatives of a rule: per following rule (None: none), the printed texts before it."""


class NotRegular(Exception):
    """The rules are not right-linear, or too many to be solved."""


def solve(
    bodies: Mapping[str, ast.Expr], render: Callable[[ast.Expr], str], name: Callable[[str], str]
) -> dict[str, str]:
    """The printed regular expression of each rule. `render` prints an expression without references to these rules,
    `name` makes a printed alternation fit to stand in a sequence. Raises NotRegular."""
    if len(bodies) > _MAX_RULES:
        raise NotRegular
    rows: dict[str, Row] = {rule: {} for rule in bodies}
    for rule, body in bodies.items():
        for before, target in _split(body, set(bodies)):
            rows[rule].setdefault(target, []).append("" if before == ast.EMPTY else render(before))
    order: list[str] = []
    left = list(rows)
    while left:
        uses = Counter(target for rule in left for target in rows[rule])
        # The texts of a rule are copied to each use of it: those that make the fewest copies go first.
        rule = min(left, key=lambda rule: (uses[rule] - (rule in rows[rule])) * len(rows[rule]))
        left.remove(rule)
        order.append(rule)
        _eliminate(rows, rule, left, name)
        if sum(len(row) for row in rows.values()) > _MAX_EDGES:
            raise NotRegular
    solved: dict[str, str] = {}
    for rule in reversed(order):
        parts = [
            _joined(before, "" if target is None else solved[target])
            for target, texts in rows[rule].items()
            for before in texts
        ]
        solved[rule] = name(" | ".join(parts))
    return solved


def _split(expr: ast.Expr, own: set[str]) -> list[tuple[ast.Expr, str | None]]:
    """The expression as alternatives of (text, rule that follows)."""
    if own.isdisjoint(references(expr)):
        return [(expr, None)]
    match expr:
        case ast.RuleRef(name):
            return [(ast.EMPTY, name)]
        case ast.Terminal(item):
            return _split(item, own)
        case ast.Choice(items):
            return [pair for item in items for pair in _split(item, own)]
        case ast.Sequence((*before, last)) if own.isdisjoint(references(ast.Sequence(tuple(before)))):
            return [(ast.sequence([*before, text]), target) for text, target in _split(last, own)]
        case ast.Repeat(item, 0, 1):
            return [(ast.EMPTY, None), *_split(item, own)]
        case _:
            raise NotRegular


def _eliminate(rows: dict[str, Row], rule: str, later: list[str], name: Callable[[str], str]) -> None:
    """Solve the self-loop of one rule, then substitute its row into the later rows."""
    row = rows[rule]
    own = [text for text in row.pop(rule, []) if text]
    if own:
        loop = f"({' | '.join(own)})*"
        rows[rule] = row = {target: [_joined(loop, text) for text in texts] for target, texts in row.items()}
    # Every row that is left refers to later rules only: shared texts are named before they multiply.
    for target, texts in row.items():
        if len(texts) > 1 or len(texts[0]) > 20:
            row[target] = [name(" | ".join(text or '""' for text in texts))]
    for other in later:
        texts = rows[other].pop(rule, None)
        if texts is None:
            continue
        for target, tails in row.items():
            known = rows[other].setdefault(target, [])
            known += [_joined(before, tail) for before in texts for tail in tails]


def _joined(before: str, after: str) -> str:
    return f"{before} {after}" if before and after else before or after or '""'


_CHARACTER: Final = re.compile(r'"(?:[^"\\]|\\(?:u[0-9a-f]{4}|[^u]))"')
_HASH_BYTES: Final = 8
_IN_CYCLE: Final = "@"


def by_content(grammar: CompiledGrammar) -> GrammarPiece:
    """The definitions of a grammar that has one a line and starts at `start`. Names that it does not define stay; those
    of rules with a parameter have its mark."""
    lines = [line.split(": ", 1) for line in grammar.lark.splitlines()]
    bodies = {_own_name(header): body for header, body in lines}
    names: dict[str, str] = {}
    for special in grammar.specials:
        if special.with_token:
            bodies[special.rule] = f"{special.spelled} | {special.with_token}"
        else:
            names[special.rule] = f"special_{_hash(special.text)}"
    pieces = {name: dict.fromkeys(PIECES.findall(body)) for name, body in bodies.items()}
    uses = {name: [piece for piece in own if piece in bodies] for name, own in pieces.items()}
    for group in components("start", uses.__getitem__):
        names.update(_names_of(group, bodies, uses, names))
    named = {
        names[name] + header[len(name) :]: _renamed(body, names)
        for header, body in lines
        if (name := _own_name(header)) in names
    }
    return GrammarPiece(
        names["start"],
        _with_named_characters(named),
        tuple(_renamed_special(special, names) for special in grammar.specials),
    )


def _renamed_special(special: SpecialText, names: Mapping[str, str]) -> SpecialText:
    rule, with_token = names[special.rule], _renamed(special.with_token, names)
    spelled = _renamed(special.spelled, names) if with_token else special.spelled
    return replace(special, rule=rule, spelled=spelled, with_token=with_token)


def _with_named_characters(bodies: Mapping[str, str]) -> dict[str, str]:
    """The definitions with a rule for each text of one character in a rule: llguidance counts every text in a rule as
    another symbol, and references to a rule not at all."""
    characters: dict[str, str] = {}

    def named(piece: re.Match[str]) -> str:
        text = piece[0]
        if text[0] != '"' or not _CHARACTER.fullmatch(text):
            return text
        name = "c_" + text[1:-1].encode("utf-8").hex()
        characters[name] = text
        return name

    rules = {header: PIECES.sub(named, body) for header, body in bodies.items() if not header[0].isupper()}
    return {**bodies, **rules, **characters}


def _own_name(header: str) -> str:
    return header.removesuffix(PARAMETER).removesuffix(LAZY)


def _names_of(
    group: list[str], bodies: Mapping[str, str], uses: Mapping[str, list[str]], known: Mapping[str, str]
) -> dict[str, str]:
    """The names of one component: of a single definition, or of those of a cycle together."""
    if len(group) == 1 and group[0] not in uses[group[0]]:
        return {group[0]: _name(group[0], _renamed(bodies[group[0]], known))}
    blank = dict.fromkeys(group, _IN_CYCLE)
    ordered = sorted(group, key=lambda name: _renamed(bodies[name], {**known, **blank}))
    numbered = {name: f"{_IN_CYCLE}{number}" for number, name in enumerate(ordered)}
    whole = "\n".join(_renamed(bodies[name], {**known, **numbered}) for name in ordered)
    return {name: _name(name, f"{numbered[name]}\n{whole}") for name in ordered}


def _renamed(body: str, names: Mapping[str, str]) -> str:
    return PIECES.sub(lambda piece: names.get(piece[0], piece[0]), body)


def _name(old: str, content: str) -> str:
    """Rules begin with a small letter, terminals with a capital one."""
    return f"r_{_hash(content)}" if old[0].islower() else f"T_{_hash(content).upper()}"


def _hash(content: str) -> str:
    return blake2b(content.encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES).hexdigest()

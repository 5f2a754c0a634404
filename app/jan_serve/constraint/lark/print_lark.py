"""Prints a grammar in llguidance's Lark dialect. llguidance's lexer is greedy: it keeps reading while any terminal
that is allowed here can continue. So a terminal of several characters is printed only for a `Terminal`, which promises
that greed does no harm; everything else becomes terminals of one character, for which greedy reading is exact. Where
one `Terminal` cannot be written as a terminal, none is: the two kinds must not meet in one place. Rules within a
`OneLayout` are printed as parametric rules, and once more for the beginning of compact texts, which may be that of
spaced ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from typing import Any, TypeAlias

from jan_serve.constraint import ast
from jan_serve.constraint.charset import UNESCAPED, CharSet
from jan_serve.constraint.lark import notation
from jan_serve.constraint.lark.references import (
    NOTHING,
    NotRegular,
    components,
    shallow_start,
    solve,
)
from jan_serve.constraint.lark.unordered_members import UnorderedWriter, are_counted
from jan_serve.constraint.layout import LAYOUTS, SPACED, Layout, Nesting, laid_rules, layout_uses
from jan_serve.constraint.limits import MAX_LARK_BYTES, MAX_LARK_GROUPS
from jan_serve.constraint.rules import has_node, references
from jan_serve.core.constraint import CompiledGrammar, SpecialText
from jan_serve.errors import GrammarTooComplex

_UNSAFE_NAME = re.compile(r"[^a-z0-9]+")
_OPENING = f'"\\"" {notation.quote_class(UNESCAPED)}*'
# Expressions up to this length are repeated in place; longer ones get a name.
_INLINE = 60
_CLEARED = f"bit_and({hex((1 << notation.LAYOUT_BITS) - 1)})"


class _Any(Enum):
    LAYOUT = "any"


# What a rule is printed for: nothing in particular, one layout, or any in a parametric rule.
_Form: TypeAlias = Layout | _Any | None


def print_lark(grammar: ast.Grammar) -> str:
    """Lark text of `grammar`, which has no `Special`; its start rule is `start`. Raises GrammarTooComplex above the
    limits of size and of references within references."""
    printed = print_lark_open(grammar)
    if printed.specials:
        raise ValueError("a grammar with control tokens is complete only with a vocabulary")
    return printed.lark


def print_lark_open(
    grammar: ast.Grammar, *, terminals: bool = True, holes: Mapping[str, str] | None = None
) -> CompiledGrammar:
    """See `print_lark`, with the rules of control tokens left to whoever knows the vocabulary. terminals: write a
    `Terminal` as one; not if free text is allowed there too, since greed would cut it off. holes: rules that the
    grammar leaves undefined, and their names in the text. A grammar that is too large in all layouts is printed in
    that of `json.dumps`."""
    laid = laid_rules(grammar.rules)
    if has_node(grammar, ast.OneLayout):
        try:
            return _print(_Printer(grammar, holes or {}, LAYOUTS, laid), terminals)
        except OnlyCharacters:
            raise
        except GrammarTooComplex:
            pass
    return _print(_Printer(grammar, holes or {}, (SPACED,), laid), terminals)


def _print(printer: _Printer, terminals: bool) -> CompiledGrammar:
    if terminals:
        with suppress(NotRegular):
            return printer.print(terminals=True)
    return printer.print(terminals=False)


class OnlyCharacters(GrammarTooComplex):
    """Some parts of the grammar can only be written without terminals, and others only with them."""


class _Printer:
    def __init__(
        self, grammar: ast.Grammar, holes: Mapping[str, str], layouts: tuple[Layout, ...], laid: set[str]
    ) -> None:
        self._rules, self._root = grammar.rules, grammar.root
        self._holes, self._laid, self._layouts = holes, laid, layouts

    def print(self, *, terminals: bool) -> CompiledGrammar:
        self._with_terminals = terminals
        self._writers = self._rule_writers()
        self._terminal_writers = self._writers_of_terminals()
        self._form: _Form = None
        self._is_decided = False
        """Whether the text before shows the first layout, which is what is printed here: a mark is between."""
        self._taken = {"start", *self._holes.values()}
        self._next: dict[str, int] = {}
        self._names: dict[tuple[str, _Form], str] = {(name, None): own for name, own in self._holes.items()}
        self._names[self._root, None] = "start"
        self._inner: dict[int, str] = {}
        self._todo: list[tuple[str, _Form]] = [(self._root, None)]
        self._lines: list[str] = []
        self._size = self._terminal_size = 0
        self._terminals: dict[str, str] = {}
        self._by_text: dict[str, str] = {}
        self._greedy_written: dict[int, str] = {}
        self._other_members: dict[int, ast.Expr] = {}
        self._unordered_written: dict[tuple[int, bool], UnorderedWriter] = {}
        self._specials: dict[tuple[str, str], SpecialText] = {}
        self._groups = 0
        while self._todo:
            name, self._form = self._todo.pop()
            own = self._names[name, self._form]
            text = self._rule(self._rules[name])
            if self._form is _Any.LAYOUT and name in self._laid:
                is_one = not isinstance(self._rules[name], ast.Choice)
                self._add(
                    own + notation.PARAMETER,
                    text + notation.ALWAYS if is_one and notation.DEEPER in text else text,
                )
            else:
                self._add(own, text)
        if self._inner or any(is_laid for _, is_laid in self._unordered_written):
            self._lines += notation.HELPERS
        # llguidance reads terminals in any order; defined before use is easier to read.
        start = next(i for i, line in enumerate(self._lines) if line.startswith("start:"))
        lines = [self._lines[start], *self._lines[:start], *self._lines[start + 1 :]]
        lines[0] = shallow_start(lines)
        return CompiledGrammar("\n".join(lines) + "\n", tuple(self._specials.values()))

    def _add(self, name: str, body: str) -> None:
        line = f"{name}: {body}"
        self._size += len(line) + 1
        if name[0].isupper():
            self._terminal_size += len(line) + 1
            if self._terminal_size > MAX_LARK_BYTES:
                raise NotRegular  # in any layout; solved, the rules are longer
        if self._size > MAX_LARK_BYTES:
            raise GrammarTooComplex("the grammar is too large to be printed as Lark")
        self._lines.append(line)

    def _fresh(self, stem: str) -> str:
        name, number = stem, self._next.get(stem, 2)
        while name in self._taken:
            name = f"{stem}_{number}"
            number += 1
        self._next[stem] = number
        self._taken.add(name)
        return name

    # Rules

    def _reference(self, name: str, argument: str = "_") -> str:
        """argument: for a rule with a parameter."""
        form = self._form if name in self._laid else None
        if self._is_decided and form is not None:
            form, argument = _Any.LAYOUT, notation.first_argument(self._layouts[0])
        key = (name, form)
        known = self._names.get(key)
        if known is None:
            known = self._names[key] = self._fresh("r_" + _UNSAFE_NAME.sub("_", name.lower()).strip("_"))
            self._todo.append(key)
        return f"{known}::{argument}" if form is _Any.LAYOUT else known

    def _rule(self, expr: ast.Expr) -> str:
        if type(expr) is ast.OneLayout:
            return self._in_each_layout(expr.item)
        if type(expr) is ast.Choice:
            return " | ".join([self._rule_sequence(item) for item in expr.items])
        return self._rule_sequence(expr)

    def _rule_sequence(self, expr: ast.Expr) -> str:
        if type(expr) is not ast.Sequence or not expr.items:
            return self._rule_item(expr)
        outer = self._is_decided
        texts: list[str] = []
        for item in expr.items:
            texts.append(self._rule_item(item))
            if len(self._layouts) > 1 and type(item) is ast.Mark and self._form is self._layouts[0]:
                self._is_decided = True
        self._is_decided = outer
        return " ".join(texts)

    def _rule_item(self, expr: ast.Expr) -> str:
        return self._writers[type(expr)](expr)

    def _rule_writers(self) -> dict[type[ast.Expr], Callable[[Any], str]]:
        """What writes each kind of expression in a rule."""
        return {
            ast.RuleRef: lambda expr: self._reference(expr.name),
            ast.Terminal: self._greedy if self._with_terminals else self._characters,
            ast.Mark: self._mark,
            ast.Repeat: lambda expr: self._nested(self._rule, expr.item, "g") + notation.bounds(expr),
            ast.Literal: lambda expr: notation.spelled_out(expr.text),
            ast.CharClass: lambda expr: self._class(expr.chars),
            ast.Sequence: lambda expr: self._nested(self._rule, expr, "g") if expr.items else '""',
            ast.Choice: lambda expr: self._nested(self._rule, expr, "g"),
            ast.OneLayout: lambda expr: self._nested(self._rule, expr, "g"),
            ast.Special: lambda expr: self._special(expr.text),
            ast.Until: self._until,
            ast.Brackets: self._brackets,
            ast.Unordered: self._unordered,
        }

    def _characters(self, expr: ast.Terminal) -> str:
        """A terminal in rules of single characters."""
        if expr.lark_only:
            raise OnlyCharacters("the grammar has texts that only terminals can describe")
        return self._rule_item(expr.item)

    def _special(self, text: str) -> str:
        if (text, "") not in self._specials:
            rule = self._fresh("special")
            self._specials[text, ""] = SpecialText(rule, text, notation.spelled_out(text))
        return self._specials[text, ""].rule

    def _until(self, expr: ast.Until) -> str:
        body = notation.quote_until(expr)
        name = self._by_text.get(body)
        if name is None:
            name = self._by_text[body] = self._fresh("until")
            self._add(name + notation.LAZY, body)
        return self._until_special(expr, name) if expr.special else name

    def _until_special(self, expr: ast.Until, spelled: str) -> str:
        """A rule that is `spelled` where the vocabulary does not have the control token of the stop."""
        known = self._specials.get((expr.special, spelled))
        if known is None:
            with_token = self._special(expr.special)
            may_be_empty = expr.low == 0 and expr.stop == expr.special
            if not may_be_empty or expr.high != 0:
                before = self._named(notation.quote_before(expr), "T")
                with_token = f"{before}{'?' if may_be_empty else ''} {with_token}"
            known = SpecialText(self._fresh("until"), expr.special, spelled, with_token)
            self._specials[expr.special, spelled] = known
        return known.rule

    def _nested(self, write: Callable[[ast.Expr], str], expr: ast.Expr, stem: str) -> str:
        """A group; one nested too deep becomes a separate rule or terminal."""
        outer, self._groups = self._groups, self._groups + 1
        if self._groups > MAX_LARK_GROUPS:
            self._groups = 0
        text = write(expr)
        deep, self._groups = outer == MAX_LARK_GROUPS, outer
        if not deep:
            return text if notation.is_atom(text) else f"({text})"
        name = self._fresh(stem)
        if stem == "g" and self._has_parameter(expr):
            self._add(name + notation.PARAMETER, text)
            return f"{name}::_"
        self._add(name, text)
        return name

    # Layouts

    def _in_each_layout(self, item: ast.Expr) -> str:
        outer = self._form
        texts: dict[str, None] = {}
        for layout in self._layouts:
            self._form = layout
            texts[self._rule(item)] = None
        self._form = outer
        return " | ".join(texts)

    def _mark(self, mark: ast.Mark) -> str:
        if isinstance(self._form, Layout):
            return notation.spelled_out(mark.text + Nesting(self._form).after(mark))
        return notation.mark_rule(mark)

    def _brackets(self, expr: ast.Brackets) -> str:
        form = self._form
        if not isinstance(form, Layout):
            inside = self._inside(expr.item, notation.DEEPER)
            return f"{notation.opening_rule(expr)} {inside} {notation.closing_rule(expr)}"
        if form is self._layouts[0]:
            item = self._nested(self._rule, expr.item, "g")
            return f"{notation.spelled_out(expr.opening)} {item} {notation.spelled_out(expr.closing)}"
        nesting = Nesting(form)
        opening, closing = expr.opening + nesting.deeper().line(), nesting.line() + expr.closing
        item = self._inside(expr.item, notation.first_argument(form))
        return f"{notation.spelled_out(opening)} {item} {notation.spelled_out(closing)}"

    def _inside(self, item: ast.Expr, argument: str) -> str:
        """What stands in brackets, as a rule for any layout but the first."""
        form, groups = self._form, self._groups
        self._form, self._groups = _Any.LAYOUT, 0
        if isinstance(item, ast.RuleRef):
            text = self._reference(item.name, argument)
        elif isinstance(item, ast.Unordered):
            text = f"{self._members_of(item).stem}::{argument}"
        else:
            is_laid = self._has_parameter(item)
            text = self._inner.get(id(item), "")
            if not text:
                text = self._inner[id(item)] = self._fresh("r_inside")
                self._add(text + notation.PARAMETER if is_laid else text, self._rule(item))
            if is_laid:
                text = f"{text}::{argument}"
        self._form, self._groups = form, groups
        return text

    # Members in any order

    def _unordered(self, expr: ast.Unordered) -> str:
        form, is_decided = self._form, self._is_decided
        stem = self._members_of(expr).stem
        if form is _Any.LAYOUT:
            return f"{stem}::_"
        if form is None or len(self._layouts) == 1:
            return f"{stem}::0"
        if is_decided or form is not self._layouts[0]:
            return f"{stem}::{notation.first_argument(form)}"
        return self._first_members(expr, form)

    def _members_of(self, expr: ast.Unordered) -> UnorderedWriter:
        """The rules of members, for any layout or the one that is printed."""
        form, is_decided, groups = self._form, self._is_decided, self._groups
        is_laid = form is not None and len(self._layouts) > 1
        known = self._unordered_written.get((id(expr), is_laid))
        if known is not None:
            return known
        self._is_decided, self._groups = False, 0
        if is_laid:
            self._form = _Any.LAYOUT
        argument = _CLEARED if is_laid else "_"
        rest = self._member(self._others(expr), argument)
        writer = self._unordered_written[id(expr), is_laid] = UnorderedWriter(
            expr,
            [f"{self._member(item, argument)} {rest}".rstrip() for item in expr.items],
            f"{self._member(expr.other, argument)} {rest}".rstrip(),
            self._rule_item(expr.separator),
            stem=self._fresh("r_members"),
            shift=notation.LAYOUT_BITS if is_laid else 0,
        )
        for name, body in writer.rules():
            self._taken.add(name)
            self._add(name + notation.PARAMETER, body)
        self._form, self._is_decided, self._groups = form, is_decided, groups
        return writer

    def _first_members(self, expr: ast.Unordered, form: Layout) -> str:
        """All members in the first layout, which the first of them shows."""
        writer = self._members_of(expr)
        argument = int(notation.first_argument(form), 16)
        self._form = _Any.LAYOUT
        rest = self._member(self._others(expr), hex(argument))
        self._form = form
        texts: list[str] = []
        for start in writer.starts():
            member = self._rule_item(expr.other if start.item is None else expr.items[start.item])
            after = f"{start.after}::{hex(argument | start.parameter)}" if start.after else ""
            parts = (member, rest, f"{after}{'?' if after and start.ends else ''}")
            texts.append(" ".join(filter(None, parts)))
        return f"({' | '.join(texts)})"

    def _others(self, expr: ast.Unordered) -> ast.Expr:
        """What may follow each member, where they are not counted; the same object each time, which has a rule."""
        known = self._other_members.get(id(expr))
        if known is None:
            more = ast.repeat(ast.sequence([expr.separator, expr.other]), 0, None)
            known = self._other_members[id(expr)] = ast.EMPTY if are_counted(expr) else more
        return known

    def _member(self, expr: ast.Expr, argument: str) -> str:
        """A part of `Unordered` as a rule; "" for one without a text."""
        if expr in (ast.EMPTY, ast.NEVER):
            return ""
        if self._form is _Any.LAYOUT:
            return self._inside(expr, argument)
        if isinstance(expr, ast.RuleRef):
            return self._reference(expr.name)
        name = self._fresh("r_member")
        self._add(name, self._rule(expr))
        return name

    def _has_parameter(self, expr: ast.Expr) -> bool:
        if self._form is not _Any.LAYOUT:
            return False
        has_nodes, used = layout_uses(expr)
        return has_nodes or not self._laid.isdisjoint(used)

    # Terminals

    def _class(self, chars: CharSet) -> str:
        """A character class; a long one is written once and has a name."""
        text = notation.quote_class(chars)
        return text if len(text) <= _INLINE else self._named(text, "C")

    def _greedy(self, expr: ast.Terminal) -> str:
        """A terminal. For a free one, a second terminal shows llguidance at once which tokens go on with the string; in
        rules nothing can follow it, so that no text takes it."""
        text = self._greedy_written.get(id(expr))  # the rules hold it: it is written in more than one form
        if text is None:
            text = self._named(self._terminal(expr.item), "T")
            if expr.is_free:
                text = f"({text} | {self._named(_OPENING, 'T')} {NOTHING})"
            self._greedy_written[id(expr)] = text
        return text

    def _named(self, text: str, stem: str) -> str:
        """A terminal with this body; one that has it already, or a short body that is a single string or class."""
        if text in self._taken:
            return text
        if text.startswith('"') and text.count('"') == 2 + text.count('\\"') and " " not in text:
            return text
        name = self._by_text.get(text)
        if name is None:
            name = self._by_text[text] = self._fresh(stem)
            self._add(name, text)
        return name

    def _terminal(self, expr: ast.Expr) -> str:
        if type(expr) is ast.Choice or type(expr) is ast.Sequence:
            regex = notation.quote_regex(expr)
            if regex is not None:
                return regex
        if type(expr) is ast.Choice:
            return " | ".join([self._terminal_sequence(item) for item in expr.items])
        return self._terminal_sequence(expr)

    def _terminal_sequence(self, expr: ast.Expr) -> str:
        if type(expr) is ast.Sequence and expr.items:
            return " ".join([self._terminal_item(item) for item in expr.items])
        return self._terminal_item(expr)

    def _terminal_item(self, expr: ast.Expr) -> str:
        return self._terminal_writers[type(expr)](expr)

    def _writers_of_terminals(self) -> dict[type[ast.Expr], Callable[[Any], str]]:
        """What writes each kind of expression in a terminal."""
        return {
            ast.Literal: lambda expr: notation.quote_literal(expr.text),
            ast.CharClass: lambda expr: self._class(expr.chars),
            ast.RuleRef: lambda expr: self._terminal_rule(expr.name),
            ast.Terminal: lambda expr: self._terminal_item(expr.item),
            ast.Except: lambda expr: self._named(self._except(expr), "T"),
            ast.Both: lambda expr: self._named(self._both(expr), "T"),
            ast.Repeat: lambda expr: (
                notation.quote_regex(expr)
                or self._nested(self._terminal, expr.item, "G") + notation.bounds(expr)
            ),
            ast.Sequence: lambda expr: self._nested(self._terminal, expr, "G") if expr.items else '""',
            ast.Choice: lambda expr: self._nested(self._terminal, expr, "G"),
        }

    def _except(self, expr: ast.Except) -> str:
        words = " | ".join([self._terminal_item(word) for word in expr.words])
        return f"{self._named(self._terminal(expr.item), 'T')} & ~({words})"

    def _both(self, expr: ast.Both) -> str:
        return " & ".join([self._named(self._terminal(item), "T") for item in (expr.item, expr.other)])

    def _terminal_rule(self, name: str) -> str:
        """The terminal of a rule. Rules on a cycle are solved together, all others printed one by one."""
        known = self._terminals.get(name)
        if known is not None:
            return known
        for group in components(
            name, lambda name: sorted(references(self._rules[name]) - self._terminals.keys())
        ):
            if len(group) == 1 and group[0] not in references(self._rules[group[0]]):
                self._terminals[group[0]] = self._group(self._terminal(self._rules[group[0]]))
            else:
                bodies = {member: self._rules[member] for member in group}
                self._terminals |= solve(bodies, self._terminal_item, self._group)
        return self._terminals[name]

    def _group(self, text: str) -> str:
        """A body made safe to stand in a sequence: short ones in parentheses, long ones by name."""
        if notation.is_atom(text) and len(text) <= _INLINE:
            return text
        return f"({text})" if len(text) <= _INLINE else self._named(text, "P")

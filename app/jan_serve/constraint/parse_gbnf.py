"""Parses GBNF, as llama.cpp reads it, into the grammar AST, and rejects or rewrites what would hurt an executor. Every
grammar from a request passes through here before any executor sees it. Terminal references (`<[id]>`) are rejected: a
grammar describes text, and has to mean the same for every model."""

from __future__ import annotations

import re
from bisect import bisect_left

from jan_serve.constraint import ast, limits
from jan_serve.constraint.automata.to_grammar import words_expr
from jan_serve.constraint.charset import MAX_CODE_POINT, char_set, complement
from jan_serve.constraint.rules import RuleBuilder, mapped, prune, references, users_of
from jan_serve.constraint.text_form import PlainText
from jan_serve.errors import InvalidGrammar

_NAME = re.compile("[A-Za-z0-9-]+")
# Possessive: what could be given back takes memory for each part.
_BLANK = re.compile(r"(?:[ \t]++|#[^\r\n]*+)*+")
_BLANK_LINES = re.compile(r"(?:[ \t\r\n]++|#[^\r\n]*+)*+")
_COUNTS = re.compile(r"\{\s*+([0-9]++)\s*+(?:(,)\s*+([0-9]*+)\s*+)?\}")
_HEX_WIDTH = {"x": 2, "u": 4, "U": 8}
_SIMPLE_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-"}


def parse_gbnf(text: str) -> ast.Grammar:
    """The grammar of a GBNF text; its start rule is `root`. Raises InvalidGrammar, with the line if known, for a
    syntax error, an undefined rule, a missing root, left recursion, bounds out of order, and for texts, counts and
    nesting above the limits; GrammarTooComplex where rewriting takes too much work. The result may be written
    differently (repetitions of items that can be empty, long lists of words), but has the same meaning."""
    if len(text.encode("utf-8", "surrogatepass")) > limits.MAX_GRAMMAR_BYTES:
        raise InvalidGrammar(f"larger than {limits.MAX_GRAMMAR_BYTES} bytes")
    rules, lines = _Parser(text).rules()
    if "root" not in rules:
        raise InvalidGrammar("no rule is named root")
    check_rules(rules, lines)
    grammar = prune(ast.Grammar(rules, "root"))
    if grammar is None:
        raise InvalidGrammar("no finite text completes the rule root", lines["root"])
    with limits.budget():
        return normalise(grammar)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._breaks = [match.start() for match in re.finditer("\n", text)]

    def rules(self) -> tuple[dict[str, ast.Expr], dict[str, int]]:
        """The rules and the line of each."""
        rules: dict[str, ast.Expr] = {}
        lines: dict[str, int] = {}
        self._space(newlines=True)
        while self._at < len(self._text):
            line = self._line()
            name = self._name()
            self._space(newlines=False)
            if not self._text.startswith("::=", self._at):
                hint = "; no grammar has that name" if self._text.strip() == name else ""
                raise self._fail(f"expected ::= after {name[:50]!r}{hint}")
            self._at += 3
            self._space(newlines=True)
            rules[name] = self._alternatives(0)
            lines[name] = line
            if self._peek() not in ("", "\r", "\n"):
                raise self._fail(f"unexpected {self._peek()!r}")
            self._space(newlines=True)
            if len(rules) > limits.MAX_RULES:
                raise self._fail(f"more than {limits.MAX_RULES} rules")
        return rules, lines

    def _peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _line(self) -> int:
        return bisect_left(self._breaks, self._at) + 1

    def _fail(self, reason: str) -> InvalidGrammar:
        return InvalidGrammar(reason, self._line())

    def _space(self, *, newlines: bool) -> None:
        blank = (_BLANK_LINES if newlines else _BLANK).match(self._text, self._at)
        self._at = blank.end() if blank else self._at

    def _name(self) -> str:
        found = _NAME.match(self._text, self._at)
        if found is None:
            there = repr(self._peek()) if self._peek() else "the end"
            raise self._fail(f"expected a rule name (letters, digits, dashes), found {there}")
        self._at = found.end()
        return found[0]

    def _alternatives(self, depth: int) -> ast.Expr:
        if depth > limits.MAX_GRAMMAR_NESTING:
            raise self._fail(f"groups nested deeper than {limits.MAX_GRAMMAR_NESTING}")
        options = [self._sequence(depth)]
        while self._peek() == "|":
            self._at += 1
            self._space(newlines=True)
            options.append(self._sequence(depth))
        return ast.choice(options)

    def _sequence(self, depth: int) -> ast.Expr:
        items: list[ast.Expr] = []
        repeated = False
        while c := self._peek():
            nested = depth > 0
            if c in "*+?{":
                if not items:
                    raise self._fail(f"nothing to repeat before {c!r}")
                if repeated:
                    raise self._fail("two repetitions in a row: use parentheses")
                items[-1] = self._repetition(items[-1])
                repeated = True
                self._space(newlines=nested)
                continue
            item = self._item(c, depth)
            if item is None:
                break
            repeated = False
            items.append(item)
            self._space(newlines=nested)
        # Not `sequence()`: a literal must not swallow its neighbour while a repetition may still follow.
        flat = [
            part for item in items for part in (item.items if isinstance(item, ast.Sequence) else (item,))
        ]
        return flat[0] if len(flat) == 1 else ast.Sequence(tuple(flat))

    def _item(self, c: str, depth: int) -> ast.Expr | None:
        if c == '"':
            return self._literal()
        if c == "[":
            return self._class()
        if c == ".":
            self._at += 1
            return ast.CharClass(((0, MAX_CODE_POINT),))
        if c == "(":
            line = self._line()
            self._at += 1
            self._space(newlines=True)
            group = self._alternatives(depth + 1)
            if self._peek() != ")":
                raise InvalidGrammar("a group is not closed", line)
            self._at += 1
            return group
        if _NAME.match(c):
            return ast.RuleRef(self._name())
        if c in "<!":
            raise self._fail("token references are not supported: a grammar describes text")
        return None

    def _literal(self) -> ast.Expr:
        line = self._line()
        self._at += 1
        parts: list[str] = []
        while (c := self._peek()) != '"':
            if not c or c == "\n":
                raise InvalidGrammar("a string is not closed", line)
            parts.append(self._char())
        self._at += 1
        return ast.Literal("".join(parts)) if parts else ast.EMPTY

    def _class(self) -> ast.Expr:
        line = self._line()
        self._at += 1
        negated = self._peek() == "^"
        self._at += negated
        ranges: list[tuple[int, int]] = []
        while (c := self._peek()) != "]":
            if not c or c == "\n":
                raise InvalidGrammar("a character class is not closed", line)
            low = high = ord(self._char())
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = ord(self._char())
                if high < low:
                    raise self._fail("a character range is out of order")
            ranges.append((low, high))
        self._at += 1
        chars = complement(char_set(ranges)) if negated else char_set(ranges)
        if not chars:
            raise InvalidGrammar("a character class matches nothing", line)
        return ast.CharClass(chars)

    def _char(self) -> str:
        c = self._peek()
        self._at += 1
        if c != "\\":
            return c
        kind = self._peek()
        self._at += 1
        if kind in _SIMPLE_ESCAPES:
            return _SIMPLE_ESCAPES[kind]
        width = _HEX_WIDTH.get(kind)
        if width is None:
            raise self._fail(f"unknown escape \\{kind}")
        digits = self._text[self._at : self._at + width]
        self._at += width
        if len(digits) < width or any(d not in "0123456789abcdefABCDEF" for d in digits):
            raise self._fail(f"\\{kind} needs {width} hex digits")
        if int(digits, 16) > MAX_CODE_POINT:
            raise self._fail(f"\\{kind}{digits} is not a character")
        return chr(int(digits, 16))

    def _repetition(self, item: ast.Expr) -> ast.Expr:
        c = self._peek()
        if c != "{":
            self._at += 1
            return ast.repeat(item, 1 if c == "+" else 0, 1 if c == "?" else None)
        found = _COUNTS.match(self._text, self._at)
        if found is None:
            raise self._fail("a repetition is {n}, {n,} or {n,m}")
        low, comma, high = found.groups(default="")
        if max(len(low), len(high)) > 9 or max(int(low), int(high or 0)) > limits.MAX_PATTERN_COUNT:
            raise self._fail(f"a repetition count above {limits.MAX_PATTERN_COUNT}")
        most = int(high or low) if high or not comma else None
        if most is not None and most < int(low):
            raise self._fail(f"a repetition of at least {int(low)} and at most {most}")
        self._at = found.end()
        return ast.repeat(item, int(low), most)


def check_rules(rules: dict[str, ast.Expr], lines: dict[str, int]) -> None:
    """Raises InvalidGrammar, with the line of the rule at fault."""
    for name, expr in rules.items():
        for used in sorted(references(expr)):
            if used not in rules:
                raise InvalidGrammar(f"the rule {used[:80]!r} is not defined", lines[name])
    nullable = nullable_rules(rules)
    first = {name: _leading(expr, nullable) for name, expr in rules.items()}
    _check_left_edges(first, lines)


def nullable_rules(rules: dict[str, ast.Expr]) -> set[str]:
    """The rules that the empty text satisfies."""
    users = users_of({name: references(expr) for name, expr in rules.items()})
    found: set[str] = set()
    changed = set(rules)
    while changed:
        # All at once: a rule that refers to thousands is examined once for those of them that are new.
        fresh = {name for name in changed if name not in found and is_nullable(rules[name], found)}
        found |= fresh
        changed = {user for name in fresh for user in users.get(name, ())}
    return found


def is_nullable(expr: ast.Expr, rules: set[str]) -> bool:
    """Whether the empty text satisfies the expression, given the rules that it satisfies."""
    match expr:
        case ast.RuleRef(name):
            return name in rules
        case ast.Sequence(items):
            return all(is_nullable(item, rules) for item in items)
        case ast.Choice(items):
            return any(is_nullable(item, rules) for item in items)
        case ast.Terminal(item):
            return is_nullable(item, rules)
        case _:
            return isinstance(expr, ast.Repeat) and (expr.low == 0 or is_nullable(expr.item, rules))


def _leading(expr: ast.Expr, nullable: set[str]) -> set[str]:
    """The rules that may stand at the very beginning."""
    match expr:
        case ast.RuleRef(name):
            return {name}
        case ast.Repeat(item) | ast.Terminal(item):
            return _leading(item, nullable)
        case ast.Choice(items):
            return set[str]().union(*(_leading(item, nullable) for item in items))
        case ast.Sequence(items):
            solid = next((at for at, item in enumerate(items, 1) if not is_nullable(item, nullable)), None)
            return set[str]().union(*(_leading(item, nullable) for item in items[:solid]))
        case _:
            return set()


def _check_left_edges(first: dict[str, set[str]], lines: dict[str, int]) -> None:
    """Depth-first over "starts with": a cycle is left recursion, and llama.cpp recurses as deep as a chain is long."""
    depth: dict[str, int] = {}
    for origin in first:
        path: list[tuple[str, list[str]]] = [] if origin in depth else [(origin, sorted(first[origin]))]
        open_names = {origin}
        while path:
            name, rest = path[-1]
            if rest:
                target = rest.pop()
                if target in open_names:
                    raise InvalidGrammar(f"the rule {target[:80]!r} starts with itself", lines[target])
                if target not in depth:
                    path.append((target, sorted(first[target])))
                    open_names.add(target)
                continue
            path.pop()
            open_names.discard(name)
            depth[name] = 1 + max((depth[target] for target in first[name]), default=0)
            if depth[name] > limits.MAX_LEFT_CHAIN:
                reason = f"the rule {name[:80]!r} starts a chain of more than {limits.MAX_LEFT_CHAIN} rules"
                raise InvalidGrammar(reason, lines[name])


# From so many words on, one stack per word costs more than a trie.
_MANY_WORDS = 16


def normalise(grammar: ast.Grammar) -> ast.Grammar:
    """The same language; `(x?){0,n}` has become `x{0,n}`, and long alternations of literals a trie of rules. The
    grammar holds no `Terminal`: GBNF writes none."""
    rules = RuleBuilder()
    rules.adopt(grammar)
    nullable = nullable_rules(grammar.rules)

    def rewritten(expr: ast.Expr) -> ast.Expr:
        if isinstance(expr, ast.Choice):
            words = tuple(item.text for item in expr.items if isinstance(item, ast.Literal))
            if len(words) > _MANY_WORDS:
                others = [rewritten(item) for item in expr.items if not isinstance(item, ast.Literal)]
                return ast.choice([words_expr(words, PlainText(), rules, "words"), *others])
        if not isinstance(expr, ast.Repeat):
            return mapped(expr, rewritten)
        item = rewritten(expr.item)
        solid = _non_empty(item, nullable) if expr.high != 1 and is_nullable(item, nullable) else None
        return ast.repeat(item, expr.low, expr.high) if solid is None else ast.repeat(solid, 0, expr.high)

    for name, expr in grammar.rules.items():
        rules.fill(name, rewritten(expr))
    return ast.Grammar(rules.rules, grammar.root)


def _non_empty(expr: ast.Expr, nullable: set[str]) -> ast.Expr | None:
    """The non-empty texts of an expression; None where a rule would have to be rewritten for it."""
    if not is_nullable(expr, nullable):
        return expr
    match expr:
        case ast.Choice(items):
            parts = [_non_empty(item, nullable) for item in items]
            return None if None in parts else ast.choice(filter(None, parts))
        case ast.Repeat(item, _, high):
            solid = _non_empty(item, nullable)
            return None if solid is None else ast.repeat(solid, 1, high)
        case ast.Sequence(items):
            options: list[ast.Expr] = []
            for index, item in enumerate(items):
                solid = _non_empty(item, nullable)
                if solid is None:
                    return None
                limits.spend(len(items) - index)
                options.append(ast.sequence([solid, *items[index + 1 :]]))
            return ast.choice(options)
        case _:
            return None

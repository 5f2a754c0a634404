"""The grammar AST, text character by character: translators build it; printers, checkers and recognizers read it. It
is not tied to GBNF: `Repeat` is a node, so each printer lowers bounds in the way that its executor survives."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from jan_serve.constraint.charset import CharSet
from jan_serve.core.uniqueness import Uniqueness


class Literal(msgspec.Struct, frozen=True):
    text: str


class CharClass(msgspec.Struct, frozen=True):
    """One character of a non-empty set."""

    chars: CharSet


class Sequence(msgspec.Struct, frozen=True):
    """All items in order; without items, the empty text."""

    items: tuple[Expr, ...]


class Choice(msgspec.Struct, frozen=True):
    """One of the alternatives; without alternatives, nothing at all."""

    items: tuple[Expr, ...]


class Repeat(msgspec.Struct, frozen=True):
    """`item` between `low` and `high` times; `high` None means no bound."""

    item: Expr
    low: int
    high: int | None


class RuleRef(msgspec.Struct, frozen=True):
    """The text of another rule."""

    name: str


class Terminal(msgspec.Struct, frozen=True):
    """`item`, which a lexer may read greedily: none of its texts can be extended by what may follow it, and no other
    terminal allowed at the same position starts with one of them. is_free: it is a string of JSON in which any text of
    `charset.UNESCAPED` may follow the opening quote. lark_only: rules cannot write it, since its texts may be read in
    many ways."""

    item: Expr
    is_free: bool = False
    lark_only: bool = False


class Except(msgspec.Struct, frozen=True):
    """A text of `item` that is none of `words`. There are some. Within a `Terminal`; only Lark's know it."""

    item: Expr
    words: tuple[Expr, ...]


class Both(msgspec.Struct, frozen=True):
    """A text of `item` that is a text of `other` too. There are some. Within a `Terminal`; only Lark's know it."""

    item: Expr
    other: Expr


class Special(msgspec.Struct, frozen=True):
    """The control token with this non-empty text; the text itself with a vocabulary that has none, in GBNF, and for
    whoever reads text."""

    text: str


class Until(msgspec.Struct, frozen=True):
    """`low` to `high` characters without `stop` in them, then `stop`; `high` None means no bound. special: what `stop`
    ends with, if that is a control token where a vocabulary has it. No beginning of `stop` is an end of it. section:
    an opening and a closing text. Characters that begin with the opening text are a section: any number of them,
    `stop` included, up to the first closing text, which `stop` has to follow. An empty closing text rules sections
    out. Only the Lark print and readers of text know this node. No other terminal is allowed where it begins."""

    low: int
    high: int | None
    stop: str
    special: str = ""
    section: tuple[str, str] | None = None


class OneLayout(msgspec.Struct, frozen=True):
    """`item` in any one `Layout`, the same for all `Brackets` and `Mark` of it and of the rules that it refers to."""

    item: Expr


class Brackets(msgspec.Struct, frozen=True):
    """`item`, never empty, between two brackets. Indented layouts give it lines of its own, a level deeper."""

    opening: str
    item: Expr
    closing: str


class Mark(msgspec.Struct, frozen=True):
    """A comma or a colon, and the white space that the layout writes after it."""

    text: str


class Unordered(msgspec.Struct, frozen=True):
    """One of `items` or more, each at most once, in any order, with `separator` between two. No two items begin alike.
    required: of each item, whether it must be there. other: what may stand between them as often as one likes; NEVER
    for nothing. low, high: of all that stand there; `high` None means no bound. Some such text exists. Only the Lark
    print knows this node, as parametric rules."""

    items: tuple[Expr, ...]
    required: tuple[bool, ...]
    separator: Expr
    other: Expr
    low: int = 0
    high: int | None = None


Expr: TypeAlias = (
    Literal
    | CharClass
    | Sequence
    | Choice
    | Repeat
    | RuleRef
    | Terminal
    | Except
    | Both
    | Special
    | Until
    | OneLayout
    | Brackets
    | Mark
    | Unordered
)

_SMALL = (Literal, CharClass, RuleRef)

EMPTY = Sequence(())
NEVER = Choice(())


class Grammar(msgspec.Struct, frozen=True):
    """Named rules; `root` names the start rule. Every `RuleRef` names a key of `rules`."""

    rules: dict[str, Expr]
    root: str = "root"


def sequence(items: Iterable[Expr]) -> Expr:
    """Concatenation with nested sequences opened, neighbouring literals joined, and NEVER absorbing."""
    flat: list[Expr] = []
    for item in items:
        if type(item) is Choice and not item.items:
            return NEVER
        for part in item.items if type(item) is Sequence else (item,):
            if type(part) is Literal and flat and type(last := flat[-1]) is Literal:
                flat[-1] = Literal(last.text + part.text)
            else:
                flat.append(part)
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def choice(items: Iterable[Expr]) -> Expr:
    """Alternation with nested choices opened, small duplicates dropped, and NEVER dropped."""
    flat: list[Expr] = []
    seen: set[Expr] = set()
    for item in items:
        for part in item.items if type(item) is Choice else (item,):
            # Hashing large alternatives costs more than a duplicate does; the IR has merged those already.
            if type(part) in _SMALL:
                if part in seen:
                    continue
                seen.add(part)
            flat.append(part)
    return flat[0] if len(flat) == 1 else Choice(tuple(flat))


def terminal(item: Expr, *, is_free: bool = False) -> Expr:
    """`item` as a terminal; NEVER stays itself."""
    return item if item == NEVER else Terminal(item, is_free)


def brackets(opening: str, item: Expr, closing: str) -> Expr:
    """`item` between brackets; NEVER stays itself."""
    return item if item == NEVER else Brackets(opening, item, closing)


def unordered(items: Unordered) -> Expr:
    """`items` without those that no text completes; NEVER if one of these is required, or too few are left."""
    kept = [(item, needed) for item, needed in zip(items.items, items.required, strict=True) if item != NEVER]
    needed = sum(items.required)
    most = len(kept) if items.other == NEVER else None
    high = items.high if most is None or (items.high is not None and items.high < most) else None
    if sum(own for _, own in kept) < needed or (most is not None and most < max(items.low, 1)):
        return NEVER
    if high is not None and high < max(items.low, needed, 1):
        return NEVER
    if not kept:
        more = Sequence((items.separator, items.other))
        others = repeat(more, max(items.low - 1, 0), None if high is None else high - 1)
        return sequence([items.other, others])
    own, required = zip(*kept, strict=True)
    return replace(items, items=own, required=required, high=high)


def optional(item: Expr) -> Expr:
    """`item` or nothing."""
    return repeat(item, 0, 1)


def repeat(item: Expr, low: int, high: int | None) -> Expr:
    """Repetition with the trivial cases resolved. A `high` below `low` matches nothing."""
    if high is not None and high < low:
        return NEVER
    if high == 0 or item == EMPTY:
        return EMPTY
    if item == NEVER:
        return EMPTY if low == 0 else NEVER
    return item if low == 1 and high == 1 else Repeat(item, low, high)


class Translated(msgspec.Struct, frozen=True):
    """uniqueness: what the texts must obey beside the grammar, where it is JSON. most: characters of raw texts that the
    grammar does not count, by their keys."""

    grammar: Grammar
    uniqueness: Uniqueness | None = None
    most: dict[str, int] = {}


class Mode(Enum):
    """ENFORCED: the engine, which compares names and items beside the grammar (`core/constraint.py`), and whose
    terminals know differences and intersections. IN_RULES: the same without such terminals, where they are too large.
    PRINTED: for GBNF, in rules without parameters, so that properties come in order. ALONE: the grammar alone; what
    needs a comparison is refused."""

    ENFORCED = "enforced"
    IN_RULES = "in rules"
    PRINTED = "printed"
    ALONE = "alone"

    @property
    def compares(self) -> bool:
        return self is not Mode.ALONE

"""Parts of the grammar of tool calls, compiled apart and kept by their content: `generation` joins them."""

from __future__ import annotations

import msgspec

from jan_serve.core.constraint import SpecialText
from jan_serve.core.text_bounds import CallMarks
from jan_serve.core.uniqueness import CallLocations, Uniqueness


class GrammarPiece(msgspec.Struct, frozen=True, tag="piece"):
    """A part of a grammar, as Lark definitions by name.

    A name follows from the body and all that it refers to, so equal definitions of several pieces are one. Names that
    are not defined here are those of `specials` and of the holes of a CallFrame.
    """

    root: str
    definitions: dict[str, str]
    specials: tuple[SpecialText, ...] = ()


class ToolGrammar(msgspec.Struct, frozen=True, tag="tool"):
    """The arguments of one tool. warnings: what of its schema is not enforced, without the tool's name. most:
    characters of texts that are counted beside the grammar, by their keys. uniqueness: of JSON arguments."""

    piece: GrammarPiece
    warnings: tuple[str, ...] = ()
    most: dict[str, int] = {}
    uniqueness: Uniqueness = Uniqueness()


class CallFrame(msgspec.Struct, frozen=True, tag="frame"):
    """All around the arguments of calls; `whole` and `triggered` as in CallGrammars.

    tools: the hole of each tool, in order. answer: the hole of an answer without a call, if there may be one. marks: of
    raw texts, and starts: `TextBounds.start` after each trigger, where the format has such texts. locations: of JSON
    arguments, in the whole and after each trigger, where the format has them; without `roots`.
    """

    whole: GrammarPiece
    triggered: tuple[GrammarPiece, ...]
    tools: tuple[str, ...]
    answer: str | None = None
    marks: CallMarks | None = None
    starts: tuple[str, ...] = ()
    locations: tuple[CallLocations, ...] = ()

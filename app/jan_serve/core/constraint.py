"""Constraints on the output of a request, and their compiled form."""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

from jan_serve.core.text_bounds import TextBounds
from jan_serve.core.uniqueness import Uniqueness


class Whitespace(Enum):
    """Which white space JSON may have.

    consistent: compact, as `json.dumps` writes it, or indented by 2 spaces, 4 spaces or a tab; the same throughout.
    flexible: at each place none, a space, or a line with any indentation.
    """

    CONSISTENT = "consistent"
    FLEXIBLE = "flexible"
    COMPACT = "compact"


class JsonObjectConstraint(msgspec.Struct, frozen=True, tag="json_object"):
    """Any JSON object. whitespace: None for the default of the server."""

    whitespace: Whitespace | None = None


class JsonSchemaConstraint(msgspec.Struct, frozen=True, tag="json_schema"):
    """JSON that validates against `schema` (a mapping or a boolean). whitespace: as in JsonObjectConstraint."""

    schema: Any
    whitespace: Whitespace | None = None


class RegexConstraint(msgspec.Struct, frozen=True, tag="regex"):
    """Text that `pattern` matches entirely."""

    pattern: str


class GbnfConstraint(msgspec.Struct, frozen=True, tag="gbnf"):
    """text: a GBNF grammar, or the name of one that the server has."""

    text: str


Constraint = JsonObjectConstraint | JsonSchemaConstraint | RegexConstraint | GbnfConstraint


class SpecialText(msgspec.Struct, frozen=True):
    """A control token that a grammar names by its text.

    rule: its Lark rule, which the grammar leaves undefined. spelled: the body of the rule if the vocabulary has no such
    token. with_token: the body if it has, where that is more than the token.
    """

    rule: str
    text: str
    spelled: str
    with_token: str = ""


class Explanation(msgspec.Struct, frozen=True, tag="explanation"):
    """compiles: whether a schema does. lines: what it costs, or why it is refused and what to change; for people."""

    compiles: bool
    lines: tuple[str, ...]


class CompiledGrammar(msgspec.Struct, frozen=True, tag="grammar"):
    """A parsed and checked grammar for the engine.

    lark: for llguidance. gbnf: the same language, to show; empty where nobody asked for it.
    specials: the rules that `lark` leaves undefined. uniqueness, bounds: what the text must obey beside the
    grammar; one of them at most.
    """

    gbnf: str
    lark: str
    specials: tuple[SpecialText, ...] = ()
    uniqueness: Uniqueness | None = None
    bounds: TextBounds | None = None

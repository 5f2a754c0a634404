"""What a caller asked the output to be. The `grammar` package turns a Constraint into a Grammar."""

from __future__ import annotations

from typing import Any

import msgspec


class JsonObjectConstraint(msgspec.Struct, frozen=True, tag="json_object"):
    """Any JSON object."""


class JsonSchemaConstraint(msgspec.Struct, frozen=True, tag="json_schema"):
    """JSON that validates against `schema` (a mapping or a boolean)."""

    schema: Any


class RegexConstraint(msgspec.Struct, frozen=True, tag="regex"):
    """Text that `pattern` matches as a whole."""

    pattern: str


class GbnfConstraint(msgspec.Struct, frozen=True, tag="gbnf"):
    """Text of a GBNF grammar, or the name of a shipped one."""

    text: str


Constraint = JsonObjectConstraint | JsonSchemaConstraint | RegexConstraint | GbnfConstraint


class SpecialText(msgspec.Struct, frozen=True):
    """A control token that a grammar names by its text.

    rule: the Lark rule that stands for it, which the grammar leaves undefined. spelled: the body of that rule where the
    vocabulary has no such token.
    """

    rule: str
    text: str
    spelled: str


class CompiledGrammar(msgspec.Struct, frozen=True):
    """A Grammar that was parsed and checked, as the engine takes it.

    gbnf: for llama.cpp's grammar sampler. lark: the same language for llguidance, None where it cannot be printed.
    specials: what `lark` leaves to the vocabulary.
    """

    gbnf: str
    lark: str | None = None
    specials: tuple[SpecialText, ...] = ()

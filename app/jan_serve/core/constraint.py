"""Constraints on the output of a request, and their compiled form."""

from __future__ import annotations

from typing import Any

import msgspec


class JsonObjectConstraint(msgspec.Struct, frozen=True, tag="json_object"):
    """Any JSON object."""


class JsonSchemaConstraint(msgspec.Struct, frozen=True, tag="json_schema"):
    """JSON that validates against `schema` (a mapping or a boolean)."""

    schema: Any


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
    token.
    """

    rule: str
    text: str
    spelled: str


class CompiledGrammar(msgspec.Struct, frozen=True):
    """A parsed and checked grammar for the engine.

    gbnf: to show. lark: the same language, which llguidance executes.
    specials: the rules that `lark` leaves undefined.
    """

    gbnf: str
    lark: str
    specials: tuple[SpecialText, ...] = ()

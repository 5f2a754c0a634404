"""Constraints bound the output of a request; these are the values that say so, and their compiled forms.

A Guide constrains the course of a chat answer: its thought, its opening, and grammars that begin at a trigger.
`generation` makes it from a chat format; the engine follows it. All strings are matched against the text of tokens
including control tokens.

TextBounds are lengths of texts in calls, which an executor counts beside a grammar: an automaton would have a state
for each. The grammar allows such a text without a bound, up to its stop.

Parts of the grammar of tool calls are compiled apart and kept by their content: `generation` joins them.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

from jan_serve.core.uniqueness import CallLocations, Uniqueness


class CallMarks(msgspec.Struct, frozen=True):
    """Where names and values are in the calls of a format. All but `stop` and `gap` are regular expressions.

    before_name, after_name: around the name of a tool. before_key, key, after_key: what begins a value, and what the
    key of any may be. stop: what ends a value. gap: belongs to the stop where it stands before it.
    """

    before_name: str
    after_name: str
    before_key: str
    key: str
    after_key: str
    stop: str
    gap: str = ""


class TextBounds(msgspec.Struct, frozen=True):
    """most: characters of the value of a key, by the names of tools. A bound is longer than any token.

    start: a regular expression for what is before the first name, where `before_name` is not all there.
    """

    marks: CallMarks
    most: dict[str, dict[str, int]]
    start: str = ""


class Whitespace(Enum):
    """Which white space JSON may have.

    consistent: compact, as `json.dumps` writes it, or indented by 2 spaces, 4 spaces or a tab; the same throughout.
    flexible: at each place none, a space, or a line with any indentation.
    """

    CONSISTENT = "consistent"
    FLEXIBLE = "flexible"
    COMPACT = "compact"


class PropertyOrder(Enum):
    """The order of properties: any; any of those that the schema lists, with others after them where one is
    required; or that of `properties`, where other names come after the last required one."""

    ANY = "any"
    LISTED = "listed"
    SCHEMA = "schema"


class JsonObjectConstraint(msgspec.Struct, frozen=True, tag="json_object"):
    """Any JSON object. whitespace: None for the default of the server."""

    whitespace: Whitespace | None = None


class JsonSchemaConstraint(msgspec.Struct, frozen=True, tag="json_schema"):
    """JSON that validates against `schema` (a mapping or a boolean). whitespace, property_order: None for the default
    of the server, here that of the schema."""

    schema: Any
    whitespace: Whitespace | None = None
    property_order: PropertyOrder | None = None


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

    lark: for llguidance. specials: the rules that `lark` leaves undefined. uniqueness, bounds: what the text must obey
    beside the grammar; one of them at most.
    """

    lark: str
    specials: tuple[SpecialText, ...] = ()
    uniqueness: Uniqueness | None = None
    bounds: TextBounds | None = None


class ThoughtGuide(msgspec.Struct, frozen=True, kw_only=True):
    """The markers of thoughts: to count and close them, and to exempt them from the grammar.

    opens, closes: the first of each is the one the model was trained on. ends: strings that end a thought without
    closing it and belong to the text after it. is_open: the prompt ends inside a thought. anywhere: a thought may begin
    after text; else only at the start of the answer. may_open: a thought may precede the text under the grammar.
    budget: tokens of thought after which it is closed; None is no limit.
    """

    opens: tuple[str, ...]
    closes: tuple[str, ...]
    ends: tuple[str, ...] = ()
    is_open: bool = False
    anywhere: bool = False
    may_open: bool = True
    budget: int | None = None


class Trigger(msgspec.Struct, frozen=True):
    """A string in an answer after which a grammar applies.

    confirmations: it applies only where one of these follows; they are the beginning of its text. Empty: always.
    """

    text: str
    grammar: CompiledGrammar
    confirmations: tuple[str, ...] = ()


class Guide(msgspec.Struct, frozen=True, kw_only=True):
    """The course of one answer: a thought, then either a grammar to the end or free text with triggers.

    lead: emitted before the grammar without sampling; lead_after_thought: the same after a thought.
    triggers: without a grammar, free text that contains a trigger continues under its grammar. at_start: only if
    nothing but white space precedes the trigger. repeat: free text follows a triggered grammar; else the answer ends
    there.
    """

    thought: ThoughtGuide | None = None
    lead: str = ""
    lead_after_thought: str = ""
    grammar: CompiledGrammar | None = None
    triggers: tuple[Trigger, ...] = ()
    at_start: bool = False
    repeat: bool = True


class CallGrammars(msgspec.Struct, frozen=True):
    """whole: one or more calls from the first character, or a text under the request's constraint, if any.

    triggered: the grammar after each trigger of the layout. warnings: tools whose schemas are only partly enforced.
    """

    whole: CompiledGrammar
    triggered: tuple[CompiledGrammar, ...]
    warnings: tuple[str, ...]


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


def any_object(reason: str) -> str:
    """The warning of a tool whose schema is not enforced."""
    return f"its arguments are held to any JSON object, not to its schema: {reason}"


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

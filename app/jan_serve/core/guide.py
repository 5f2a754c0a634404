"""Constraints on the course of a chat answer: its thought, its opening, and grammars that begin at a trigger.

`generation` makes a Guide from a chat format; the engine follows it. All strings are matched against the text of tokens
including control tokens.
"""

from __future__ import annotations

import msgspec

from jan_serve.core.constraint import CompiledGrammar


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

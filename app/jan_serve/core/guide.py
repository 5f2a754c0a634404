"""How a chat answer is held to what was asked of it: its thought, its opening, and grammars that begin in the middle.

Values only; `generation` makes a Guide from a chat format, the engine follows it. All texts are compared with the text
of tokens, control tokens included.
"""

from __future__ import annotations

import msgspec

from jan_serve.core.constraint import CompiledGrammar


class ThoughtGuide(msgspec.Struct, frozen=True, kw_only=True):
    """The markers of thoughts, to count them, to end them, and to keep a grammar off them.

    opens, closes: of each, the first is what the model was taught. ends: texts that end a thought without closing it
    and are part of what follows. is_open: the prompt ended inside of a thought. anywhere: a thought may begin after
    text; else at the start of the answer only. may_open: the answer may begin with a thought before what a grammar
    wants. budget: tokens of thought after which it is closed; None is no limit.
    """

    opens: tuple[str, ...]
    closes: tuple[str, ...]
    ends: tuple[str, ...] = ()
    is_open: bool = False
    anywhere: bool = False
    may_open: bool = True
    budget: int | None = None


class Trigger(msgspec.Struct, frozen=True):
    """Text of an answer behind which a grammar holds."""

    text: str
    grammar: CompiledGrammar


class Guide(msgspec.Struct, frozen=True, kw_only=True):
    """The course of one answer: a thought, then either a grammar to the end or free text with triggers.

    lead: written before the grammar without being sampled; lead_after_thought: in its place behind a thought.
    triggers: with no grammar, free text that comes to one goes on by the trigger's grammar. at_start: only where
    nothing but white space stands before the trigger. repeat: behind a triggered grammar the text is free again; else
    the answer ends there.
    """

    thought: ThoughtGuide | None = None
    lead: str = ""
    lead_after_thought: str = ""
    grammar: CompiledGrammar | None = None
    triggers: tuple[Trigger, ...] = ()
    at_start: bool = False
    repeat: bool = True


class CallGrammars(msgspec.Struct, frozen=True):
    """whole: one call or more from the first character on, or a text under the constraint where one was given.

    triggered: per trigger of the layout, what follows it. warnings: about tools whose arguments are held to less than
    their schema.
    """

    whole: CompiledGrammar
    triggered: tuple[CompiledGrammar, ...]
    warnings: tuple[str, ...]

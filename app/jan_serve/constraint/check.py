"""Finds where a text leaves a constraint, by what the engine runs."""

from __future__ import annotations

from jan_serve.constraint.enforce import Enforced
from jan_serve.constraint.trial import tokenizer
from jan_serve.lark_matcher import made_matcher, too_complex
from jan_serve.text.uniqueness.check import UniquenessCheck


def leaves_at(enforced: Enforced, text: str) -> int | None:
    """The index of the first character that nothing allowed continues with; `len(text)` where the text is only a
    beginning; None where it is complete.

    Raises InvalidGrammar, GrammarTooComplex.
    """
    matcher = made_matcher(tokenizer(), enforced.lark.text)
    unique = None if enforced.uniqueness is None else UniquenessCheck(enforced.uniqueness)
    state = None if unique is None else unique.start
    for index, character in enumerate(text):
        data = character.encode("utf-8", "surrogatepass")
        for byte in data:  # the tokens of single bytes are the first ones
            if matcher.validate_tokens([byte]) != 1:
                if matcher.is_error():
                    raise too_complex(matcher)
                return index
            if not matcher.consume_token(byte):
                raise too_complex(matcher)
        if unique is not None and state is not None:
            state = unique.written(state, data)
            if state is None:
                return index
    return None if matcher.is_accepting() else len(text)

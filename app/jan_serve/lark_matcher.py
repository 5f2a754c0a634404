"""llguidance's matcher of a Lark grammar, within the limits of the engine."""

from __future__ import annotations

from typing import Any, Final

from jan_serve.errors import GrammarTooComplex, InvalidGrammar

MAX_ITEMS_IN_ROW: Final = 4_000
"""Twice the default: an object of 500 optional properties begins in 1,000 ways as compact JSON, and again as spaced."""

MAX_GRAMMAR_SIZE: Final = 100_000
"""Symbols in its rules, as llguidance counts them: a fifth of its default. It takes about 13 µs of a CPU for each."""

MAX_TERMINAL_WORK: Final = 4_000_000
"""Work to find out which terminals have texts, in llguidance's measure: four times its default, 0.15 s of a CPU."""

# llguidance's messages for its limits, reworded for the author of the grammar.
_REASONS: Final = {
    "items; max": "more parses at once than the limit",
    "Too many items": "more parses at once than the limit",
    "fuel": "more work than the limit for one token",
    "too many states": "more states of its terminals than the limit",
}
_TOO_LARGE: Final = ("too big", "panic")
"""Words of llguidance for its limits while it compiles. It has no other one for more symbols than 16 bits count."""


def made_matcher(tokenizer: Any, lark: str) -> Any:
    """llguidance's matcher at the start of a Lark grammar, within the limits of the engine. Raises InvalidGrammar,
    GrammarTooComplex. Blocks for a second at most."""
    import llguidance  # not needed for the first answer

    limits = llguidance.LLParserLimits(
        max_items_in_row=MAX_ITEMS_IN_ROW,
        max_grammar_size=MAX_GRAMMAR_SIZE,
        initial_lexer_fuel=MAX_TERMINAL_WORK,
    )
    grammar = llguidance.LLMatcher.grammar_from_lark(lark)
    matcher = llguidance.LLMatcher(tokenizer, grammar, log_level=0, limits=limits)
    if not matcher.is_error():
        return matcher
    reason = _reason(matcher.get_error())
    if any(words in reason for words in _TOO_LARGE):
        raise GrammarTooComplex(
            f"the grammar is too large: its rules have more than {MAX_GRAMMAR_SIZE} symbols, or its terminals"
            " need more work than the limit; use fewer alternatives and shorter patterns",
            param="grammar",
        )
    raise InvalidGrammar(f"the grammar cannot be compiled: {reason}")


def too_complex(matcher: Any) -> GrammarTooComplex:
    """The error of a matcher that stopped within a text."""
    return GrammarTooComplex(
        f"the grammar is too ambiguous at this point of the text ({_reason(matcher.get_error())});"
        " use bounded repeats and fewer optional parts that begin alike",
        param="grammar",
    )


def _reason(text: str) -> str:
    """The first line of llguidance's message, without the parser state that follows."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "no reason was given"
    for words, reason in _REASONS.items():
        if words in lines[0]:
            return reason
    return lines[0].split(";")[0][:200]

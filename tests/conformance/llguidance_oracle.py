"""llguidance as a judge: does a text belong to a grammar printed as Lark."""

from __future__ import annotations

from typing import Any

import llguidance

from jan_serve.engine.constraint.grammar_executor import MAX_ITEMS_IN_ROW


class LlguidanceOracle:
    """llguidance over bytes as tokens."""

    def __init__(self) -> None:
        self._tokenizer = llguidance.LLTokenizer("byte")

    def compile(self, lark: str) -> Any:
        """A matcher. Raises ValueError where llguidance refuses the grammar."""
        grammar = llguidance.LLMatcher.grammar_from_lark(lark)
        limits = llguidance.LLParserLimits(max_items_in_row=MAX_ITEMS_IN_ROW)
        matcher = llguidance.LLMatcher(self._tokenizer, grammar, log_level=0, limits=limits)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher

    def accepts(self, matcher: Any, text: str) -> bool:
        """Whether the matcher takes the text and may end after it."""
        matcher.reset()
        tokens = self._tokenizer.tokenize_str(text)
        return bool(matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting())

"""llguidance as a judge: does a text belong to a grammar printed as Lark."""

from __future__ import annotations

from typing import Any

import llguidance

from jan_serve.engine.constraint.grammar_factory import check_lark
from jan_serve.lark_matcher import made_matcher


class LlguidanceOracle:
    """llguidance over bytes as tokens, within the limits of the engine."""

    def __init__(self) -> None:
        self._tokenizer = llguidance.LLTokenizer("byte")

    def compile(self, lark: str) -> Any:
        """A matcher. Raises InvalidGrammar or GrammarTooComplex where the engine refuses the grammar."""
        check_lark(lark)
        return made_matcher(self._tokenizer, lark)

    def accepts(self, matcher: Any, text: str) -> bool:
        """Whether the matcher takes the text and may end after it."""
        matcher.reset()
        tokens = self._tokenizer.tokenize_str(text)
        return bool(matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting())

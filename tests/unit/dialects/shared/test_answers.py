"""Deltas of a choice come together in the order they came in, calls by their places."""

from __future__ import annotations

from jan_serve.core.events import Finished, ReasoningDelta, TextDelta, TokenInfo, ToolCallDelta
from jan_serve.dialects.shared.answers import FoldedChoice


def test_texts_thoughts_and_their_tokens() -> None:
    choice = FoldedChoice()
    choice.add(ReasoningDelta(0, "so ", (TokenInfo(1, b"so "),)))
    choice.add(TextDelta(0, "an", (TokenInfo(2, b"an"),)))
    choice.add(ReasoningDelta(0, "then"))
    choice.add(TextDelta(0, "swer", (TokenInfo(3, b"swer"),)))
    choice.add(Finished(index=0, reason="length"))
    assert (choice.thought, choice.text, choice.ids) == ("so then", "answer", [1, 2, 3])
    assert choice.reason == "length"


def test_fragments_of_calls_that_interleave() -> None:
    choice = FoldedChoice()
    choice.add(ToolCallDelta(0, 0, "a", "find"))
    choice.add(ToolCallDelta(0, 0, arguments='{"x":'))
    choice.add(ToolCallDelta(0, 1, "b", "open", "{}"))
    choice.add(ToolCallDelta(0, 0, arguments="1}"))
    calls = [(call.id, call.name, call.arguments) for call in choice.calls]
    assert calls == [("a", "find", '{"x":1}'), ("b", "open", "{}")]

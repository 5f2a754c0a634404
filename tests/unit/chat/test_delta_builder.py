"""Which pieces make one delta, and the white space that belongs to the format."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from jan_serve.chat.delta_builder import BREAK, Delta, DeltaBuilder
from jan_serve.core.events import ReasoningDelta, TextDelta, TokenInfo, ToolCallDelta

Step = Callable[[DeltaBuilder], None]
A, B = TokenInfo(1, b"a"), TokenInfo(2, b"b")


def text(value: str) -> Step:
    return lambda out: out.text(value)


def call(name: str) -> Step:
    return lambda out: out.open_call(name)


def arguments(value: str) -> Step:
    return lambda out: out.arguments(value)


def think(out: DeltaBuilder) -> None:
    out.open_thought()


def answer(out: DeltaBuilder) -> None:
    out.close_thought()


def message(out: DeltaBuilder) -> None:
    out.break_text()


def builder() -> DeltaBuilder:
    numbers: Iterator[int] = iter(range(9))
    return DeltaBuilder(3, lambda name, own: f"{name}-{next(numbers)}")


def built(*steps: Step) -> list[Delta]:
    out = builder()
    for step in steps:
        step(out)
    out.finish()
    return out.take()


@pytest.mark.parametrize(
    ("steps", "deltas"),
    [
        ([], []),
        ([text("a"), text("b")], [TextDelta(3, "ab")]),
        ([text(" a "), text(" b ")], [TextDelta(3, " a  b ")]),
        ([text("  ")], [TextDelta(3, "  ")]),
        ([think, text("\na\n"), answer, text("\n\nb")], [ReasoningDelta(3, "a"), TextDelta(3, "b")]),
        ([think, text("a"), answer, text(" \n\n"), text("  b")], [ReasoningDelta(3, "a"), TextDelta(3, "  b")]),
        ([think, text("a"), answer, text("  b")], [ReasoningDelta(3, "a"), TextDelta(3, "b")]),
        ([think, text(" \n"), answer, text("b")], [TextDelta(3, "b")]),
        ([text("a "), think, text("b")], [TextDelta(3, "a"), ReasoningDelta(3, "b")]),
        ([think, text("a"), answer, text("\n")], [ReasoningDelta(3, "a")]),
        ([think, text("a"), answer, text("\n"), text("b "), text("c")],
         [ReasoningDelta(3, "a"), TextDelta(3, "b c")]),
        ([text("a"), message, text("b")], [TextDelta(3, f"a{BREAK}b")]),
        ([text("a\n"), message, text("b")], [TextDelta(3, f"a{BREAK}b")]),
        ([message, text("b")], [TextDelta(3, "b")]),
        ([think, text("a"), answer, message, text("b")], [ReasoningDelta(3, "a"), TextDelta(3, "b")]),
    ],
)  # fmt: skip
def test_text_and_thoughts(steps: list[Step], deltas: list[Delta]) -> None:
    assert built(*steps) == deltas


@pytest.mark.parametrize(
    ("steps", "deltas"),
    [
        ([call("f")], [ToolCallDelta(3, 0, "f-0", "f", "")]),
        ([call("f"), arguments("{"), arguments("}")], [ToolCallDelta(3, 0, "f-0", "f", "{}")]),
        ([text("a\n"), call("f"), arguments("{}"), text("\n"), call("g"), arguments("[]"), text("\nb")],
         [TextDelta(3, "a"), ToolCallDelta(3, 0, "f-0", "f", "{}"), ToolCallDelta(3, 1, "g-1", "g", "[]"),
          TextDelta(3, "b")]),
    ],
)  # fmt: skip
def test_calls(steps: list[Step], deltas: list[Delta]) -> None:
    assert built(*steps) == deltas


def test_a_call_that_is_taken_in_parts_has_its_id_once() -> None:
    out = builder()
    out.open_call("f")
    out.arguments("{")
    assert out.take() == [ToolCallDelta(3, 0, "f-0", "f", "{")]
    assert out.take() == []
    out.arguments("")
    assert out.take() == [], "nothing new: no delta"
    out.arguments("}")
    assert out.take() == [ToolCallDelta(3, 0, None, None, "}")]
    assert out.calls == 1


def test_white_space_waits_for_the_text_after_it() -> None:
    out = builder()
    out.text("a \n")
    assert out.take() == [TextDelta(3, "a")]
    out.text(" b")
    assert out.take() == [TextDelta(3, " \n b")]


def test_tokens_are_sent_with_the_next_text_and_none_is_lost() -> None:
    out = builder()
    out.add_tokens((A,))
    out.open_call("f")
    assert out.take() == [ToolCallDelta(3, 0, "f-0", "f", "")]
    out.add_tokens((B,))
    out.text("x")
    assert out.take() == [TextDelta(3, "x", (A, B))]
    out.add_tokens((A,))
    out.open_thought()
    out.finish()
    assert out.take() == [ReasoningDelta(3, "", (A,))]


def test_pieces_with_their_own_tokens_stay_apart() -> None:
    out = builder()
    out.add_tokens((A,))
    out.text("a")
    out.add_tokens((B,))
    out.text("b")
    assert out.take() == [TextDelta(3, "a", (A,)), TextDelta(3, "b", (B,))]


def test_has_text_counts_from_the_last_thought_or_call() -> None:
    out = builder()
    seen: list[bool] = []
    for step in (text(" "), text("a"), think, text("t"), answer, text("\n"), text("b"), call("f")):
        step(out)
        seen.append(out.has_text)
    assert seen == [False, True, False, True, False, False, True, False]

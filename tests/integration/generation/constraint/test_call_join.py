"""Joining frames and arguments: holes, what is shared, and what is loosened where all is too much for one grammar."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from jan_serve.chat.chat_format import ChatFormat
from jan_serve.chat.detect import FORMATS
from jan_serve.chat.formats.marked_json import HERMES
from jan_serve.core.constraint import (
    CallFrame,
    CallGrammars,
    CompiledGrammar,
    GrammarPiece,
    SpecialText,
    ToolGrammar,
    any_object,
)
from jan_serve.errors import GrammarTooComplex
from jan_serve.generation.constraint import call_join
from jan_serve.generation.constraint.call_frame import call_frame
from jan_serve.generation.constraint.call_join import TOO_MANY, JoinedTool, cost_of, join_calls
from jan_serve.generation.constraint.tool_grammar import tool_grammar
from tests.conformance.llguidance_oracle import LlguidanceOracle

QWEN = next(form for form in FORMATS if form.name == "qwen3-coder")
LOOSENED = GrammarPiece("any", {"any": '"{" inner "}"', "inner": "/[^{}]*/"})


def frame_of(count: int, *, answer: bool = False) -> CallFrame:
    """`<` hole `>` of one of the tools; after a trigger the `<` is there."""
    holes = tuple(f"hole_{number}" for number in range(count))
    calls = " | ".join(holes)
    first = "frame_whole | hole_answer" if answer else "frame_whole"
    whole = GrammarPiece("frame", {"frame": first, "frame_whole": f'"<" ({calls}) ">"'})
    triggered = GrammarPiece("rest", {"rest": f'({calls}) ">"'})
    return CallFrame(whole, (triggered,), holes, "hole_answer" if answer else None)


def words(text: str, count: int = 1) -> GrammarPiece:
    """A grammar of `count` words, with a cost to match."""
    return GrammarPiece(f"root_{text}", {f"root_{text}": " ".join([f'"{text}"'] * count)})


def tool(
    name: str, piece: GrammarPiece | None = None, *, strict: bool = False, warnings: Sequence[str] = ()
) -> JoinedTool:
    return JoinedTool(name, ToolGrammar(piece or words(name), tuple(warnings)), may_be_loosened=not strict)


def accepts(grammar: CompiledGrammar, text: str) -> bool:
    oracle = LlguidanceOracle()
    specials = "".join(f"{special.rule}: {special.spelled}\n" for special in grammar.specials)
    return oracle.accepts(oracle.compile(grammar.lark + specials), text)


def is_loosened(calls: CallGrammars, hole: int) -> bool:
    return f"hole_{hole}: any" in calls.whole.lark.splitlines()


def test_control_tokens_of_all_pieces_are_kept_once() -> None:
    one, two = SpecialText("special_1", "<one>", '"<one>"'), SpecialText("special_2", "<two>", '"<two>"')
    frame = frame_of(2)
    whole = GrammarPiece(frame.whole.root, frame.whole.definitions, (one,))
    frame = CallFrame(whole, frame.triggered, frame.tools)
    tools = [
        tool("a", GrammarPiece("x", {"x": "special_2"}, (two,))),
        tool("b", GrammarPiece("y", {"y": "special_1"}, (one,))),
    ]
    calls = join_calls(frame, tools, LOOSENED, None)
    assert calls.whole.specials == (one, two)
    assert {*calls.triggered[0].specials} == {one, two}


# What is loosened


@pytest.mark.parametrize(
    ("sizes", "limit", "loosened"),
    [
        ([5, 90, 5, 50], 1000, []),
        ([5, 90, 5, 50], 120, [1]),
        ([5, 90, 5, 50], 60, [1, 3]),
        ([50, 50, 50], 150, [2]),
        ([50, 50, 50], 100, [1, 2]),
    ],
)
def test_the_most_expensive_go_first_and_of_equal_ones_the_last(
    sizes: list[int], limit: int, loosened: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_join, "MAX_COST", limit)
    tools = [tool(f"t{number}", words(f"t{number}", size)) for number, size in enumerate(sizes)]
    calls = join_calls(frame_of(len(sizes)), tools, LOOSENED, None)
    assert [number for number in range(len(sizes)) if is_loosened(calls, number)] == loosened
    named = ", ".join(f"t{number}" for number in loosened)
    expected = f"tool{'s' * (len(loosened) > 1)} {named}: {TOO_MANY}"
    assert calls.warnings == ((expected,) if loosened else ())
    for number, size in enumerate(sizes):
        text = "{x}" if number in loosened else f"t{number}" * size
        assert accepts(calls.whole, f"<{text}>")
        assert accepts(calls.triggered[0], f"{text}>")


def test_a_definition_that_others_need_frees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loosening one of two tools with the same schema does not help; both go."""
    monkeypatch.setattr(call_join, "MAX_COST", 50)
    same = words("same", 50)
    calls = join_calls(frame_of(3), [tool("a", same), tool("b", same), tool("c")], LOOSENED, None)
    assert [is_loosened(calls, number) for number in range(3)] == [True, True, False]
    assert "root_same" not in calls.whole.lark


def test_the_answer_and_the_frame_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_join, "MAX_COST", 100)
    tools = [tool("a", words("a", 60))]
    assert join_calls(frame_of(1), tools, LOOSENED, None).warnings == ()
    calls = join_calls(frame_of(1, answer=True), tools, LOOSENED, words("yes", 60))
    assert is_loosened(calls, 0)


@pytest.mark.parametrize("answer", [None, words("yes", 200)])
def test_what_may_not_be_loosened_is_refused(
    answer: GrammarPiece | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_join, "MAX_COST", 100)
    tools = [tool("a", words("a", 200), strict=answer is None), tool("b")]
    with pytest.raises(GrammarTooComplex, match="`strict`") as refused:
        join_calls(frame_of(2, answer=answer is not None), tools, LOOSENED, answer)
    assert refused.value.param == "tools"


def test_a_strict_tool_keeps_its_schema_though_it_is_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_join, "MAX_COST", 130)
    tools = [tool("a", words("a", 90), strict=True), tool("b", words("b", 50))]
    calls = join_calls(frame_of(2), tools, LOOSENED, None)
    assert [is_loosened(calls, number) for number in range(2)] == [False, True]


# Warnings


def test_a_warning_names_all_tools_that_share_it() -> None:
    reasons = ["x", "y", "x", "z", "x"]
    tools = [tool(f"t{number}", warnings=[reason]) for number, reason in enumerate(reasons)]
    calls = join_calls(frame_of(5), tools, LOOSENED, None)
    assert calls.warnings == ("tools t0, t2, t4: x", "tool t1: y", "tool t3: z")


def test_the_reason_of_a_loosened_schema_is_said() -> None:
    assert any_object("`x`") == "its arguments are held to any JSON object, not to its schema: `x`"


@pytest.mark.parametrize(
    ("name", "body", "cost"),
    [
        ("r", '"a"', 2),
        ("r", '"a" /[a-b]/ T_1', 4),
        ("r", "a b c", 1),
        ("r", "a b c d | e | f g h", 3),
        ("r", "(a b)* c", 2),
        ("r", "(a){2,9}", 10),
        ("r", "a ((b){3} c){4}", 19),
        ("T_1", '"a" ("b" | /[c-d]/){3,8}', 1),
    ],
)
def test_what_a_definition_costs(name: str, body: str, cost: int) -> None:
    assert cost_of(name, body) == cost


# Real formats


@pytest.mark.parametrize("form", (HERMES, QWEN), ids=lambda form: form.name)
def test_a_thousand_tools_are_served(form: ChatFormat) -> None:
    """And llguidance compiles what is within the limit."""
    names = [f"tool_{number}" for number in range(1_000)]
    frame = call_frame(form, names, parallel=True, answer=False)
    properties: dict[str, Any] = {
        f"field_{index}": {"type": ("string", "integer", "boolean", "number")[index % 4]}
        for index in range(40)
    }
    own = tool_grammar(form, {"type": "object", "properties": properties}).piece
    loosened = tool_grammar(form, {"type": "object"}).piece
    tools = [tool(name, _own(own, loosened, name)) for name in names]
    calls = join_calls(frame, tools, loosened, None)
    assert len(calls.warnings) == 1
    assert calls.warnings[0].endswith(TOO_MANY)
    enforced = sum(f"{name}_root" in calls.whole.lark for name in names)
    assert 100 < enforced < 1_000
    specials = "".join(f"{special.rule}: {special.spelled}\n" for special in calls.whole.specials)
    LlguidanceOracle().compile(calls.whole.lark + specials)


def _own(piece: GrammarPiece, shared: GrammarPiece, name: str) -> GrammarPiece:
    """The piece with definitions as only this tool has them, but for those that are shared."""
    names = {header.split("::")[0] for header in piece.definitions.keys() - shared.definitions.keys()}
    found = re.compile("|".join(sorted(names)))

    def renamed(text: str) -> str:
        return found.sub(lambda one: one[0] + name.removeprefix("tool"), text)

    root = f"{name}_root"
    definitions = {renamed(header): renamed(body) for header, body in piece.definitions.items()}
    definitions[root] = renamed(piece.root)
    return GrammarPiece(root, definitions, piece.specials)

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from jan_serve.core.messages import Tool, ToolChoice
from jan_serve.dialects.openai.responses.custom_input import CustomInput, custom_arguments
from jan_serve.dialects.openai.responses.tools import Callee, ToolBook
from jan_serve.dialects.openai.responses.wire import ToolChoice as WireChoice
from jan_serve.dialects.openai.responses.wire import Tools
from jan_serve.errors import InvalidRequest

TOOLS: TypeAdapter[Any] = TypeAdapter(Tools)
CHOICE: TypeAdapter[WireChoice] = TypeAdapter(WireChoice)

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION = {"type": "function", "name": "f", "description": "d", "parameters": SCHEMA, "strict": True}
CUSTOM = {"type": "custom", "name": "patch", "description": "Patches."}
SPACE = {"type": "namespace", "name": "mcp__docs__", "description": "n", "tools": [FUNCTION, CUSTOM]}


def book(*tools: dict[str, Any]) -> ToolBook:
    return ToolBook(TOOLS.validate_python(list(tools)))


def chosen(choice: Any, *tools: dict[str, Any]) -> tuple[list[str], ToolChoice]:
    found, wanted = book(*tools).chosen(CHOICE.validate_python(choice))
    return [tool.name for tool in found], wanted


def input_of(**fields: Any) -> dict[str, Any]:
    text = {"type": "string", **fields}
    return {
        "type": "object",
        "properties": {"input": text},
        "required": ["input"],
        "additionalProperties": False,
    }


def test_functions_are_shown_as_they_are() -> None:
    tools, choice = book(FUNCTION, {"type": "function", "name": "bare", "strict": False}).chosen("auto")
    assert tools == (
        Tool(name="f", description="d", parameters=SCHEMA, strict=True),
        Tool(name="bare", parameters={"type": "object", "properties": {}}),
    )
    assert choice == ToolChoice("auto")
    assert tools[1].strict is None, "Codex sends false for all its functions"


def test_namespaces_are_before_names_and_found_again() -> None:
    found = book(FUNCTION, SPACE, {**SPACE, "name": "agents"})
    assert [tool.name for tool in found.chosen("auto")[0]] == [
        "f", "mcp__docs__f", "mcp__docs__patch", "agents__f", "agents__patch",
    ]  # fmt: skip
    assert found.callee("f") == Callee("f")
    assert found.callee("mcp__docs__f") == Callee("f", "mcp__docs__")
    assert found.callee("agents__patch") == Callee("patch", "agents", custom=True)
    assert found.callee("who") == Callee("who")


@pytest.mark.parametrize(
    ("form", "schema", "shown", "warned"),
    [
        (None, input_of(), None, False),
        ({"type": "text"}, input_of(), None, False),
        (
            {"type": "grammar", "syntax": "regex", "definition": "a|b"},
            input_of(pattern="^(?:a|b)$"),
            "a|b",
            False,
        ),
        ({"type": "grammar", "syntax": "lark", "definition": 'start: "x"'}, input_of(), 'start: "x"', True),
    ],
)
def test_custom_tools_are_functions_of_one_text(
    form: Any, schema: dict[str, Any], shown: str | None, warned: bool
) -> None:
    found = book({**CUSTOM, "format": form})
    [tool] = found.chosen("auto")[0]
    assert (tool.name, tool.parameters, tool.strict) == ("patch", schema, None)
    assert (tool.description or "").startswith("Patches.")
    assert shown is None or shown in (tool.description or "")
    assert bool(found.warnings) is warned


def test_a_grammar_without_its_text_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"tools\[0\].format"):
        book({**CUSTOM, "format": {"type": "grammar", "syntax": "regex"}})


@pytest.mark.parametrize("twice", [[FUNCTION, FUNCTION], [FUNCTION, {**CUSTOM, "name": "f"}], [SPACE, SPACE]])
def test_tools_that_a_model_cannot_tell_apart_are_refused(twice: list[dict[str, Any]]) -> None:
    with pytest.raises(InvalidRequest, match=r"tools\[1\]: .* is there already"):
        book(*twice)


@pytest.mark.parametrize(
    "kind", ["web_search", "file_search", "local_shell", "mcp", "image_generation", "new"]
)
def test_tools_of_other_servers_are_left_out_and_told(kind: str) -> None:
    found = book({"type": kind, "more": 1}, FUNCTION)
    assert len(found.chosen("auto")[0]) == len(found.shown) == 1
    [warning] = found.warnings
    assert warning.startswith(f"tools[0]: {kind}")


@pytest.mark.parametrize(
    ("choice", "names", "expected"),
    [
        ("none", ["f", "patch"], ToolChoice("none")),
        ("required", ["f", "patch"], ToolChoice("required")),
        ({"type": "function", "name": "f"}, ["f", "patch"], ToolChoice("named", "f")),
        ({"type": "custom", "name": "patch"}, ["f", "patch"], ToolChoice("named", "patch")),
        (
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "custom", "name": "patch"}, {"type": "x"}],
            },
            ["f", "patch"],
            ToolChoice("required", among=frozenset({"patch"})),
        ),
    ],
)
def test_choices(choice: Any, names: list[str], expected: ToolChoice) -> None:
    assert chosen(choice, FUNCTION, CUSTOM) == (names, expected)


def test_a_tool_of_a_namespace_can_be_chosen() -> None:
    choice = {"type": "function", "name": "f", "namespace": "mcp__docs__"}
    assert chosen(choice, SPACE)[1] == ToolChoice("named", "mcp__docs__f")


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "function", "name": "g"},
        {"type": "web_search_preview"},
        {"type": "allowed_tools", "mode": "auto", "tools": []},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "g"}]},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function"}]},
    ],
)
def test_choices_of_what_is_not_there_are_refused(choice: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        chosen(choice, FUNCTION)
    assert caught.value.param == "tool_choice"


def read(pieces: list[str]) -> str:
    taken = CustomInput()
    given_out = [taken.feed(piece) for piece in pieces]
    given_out.append(taken.finish())
    return "".join(given_out)


def read_everywhere(text: str) -> str:
    """The same however the text is cut."""
    [value] = {
        read([text]),
        read(list(text)),
        *(read([text[:cut], text[cut:]]) for cut in range(len(text) + 1)),
    }
    return value


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ('{"input": "abc"}', "abc"),
        ('{"input":""}', ""),
        (' {\n"input" : "a\\nb\\t\\"c\\" \\\\ \\/"\n}', 'a\nb\t"c" \\ /'),
        ('{"input": "line\nbreak"}', "line\nbreak"),
        ('{"input": "\\u00e9\\ud83d\\ude42é🙂"}', "é🙂é🙂"),
        # Half a pair is no character.
        ('{"input": "\\ud83dx"}', "\ufffdx"),
        ('{"input": "\\ud83d"}', "\ufffd"),
        # Cut short: what is whole of it.
        ('{"input": "ab', "ab"),
        ('{"input": "ab\\', "ab"),
        ('{"input": "ab\\u00', "ab"),
        ('{"inp', '{"inp'),
        # Other arguments than were asked for.
        ('{"patch": "x"}', '{"patch": "x"}'),
        ('{"a": 1, "input": "x"}', "x"),
        ('{"input": 3}', '{"input": 3}'),
        ("[1]", "[1]"),
        ("", ""),
    ],
)
def test_the_input_comes_out_however_it_is_cut(arguments: str, value: str) -> None:
    assert read_everywhere(arguments) == value


@given(st.text(st.characters(exclude_categories=["Cs"])), st.booleans())
def test_any_text_comes_through(text: str, ascii_only: bool) -> None:
    assert read(list(json.dumps({"input": text}, ensure_ascii=ascii_only))) == text
    assert read([custom_arguments(text)]) == text

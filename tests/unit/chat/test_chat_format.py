"""Formats, templates that show tools, and answers that are read by a format however they are cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from jan_serve.chat.chat_format import ChatFormat, Signature, StreamParser, Thought
from jan_serve.chat.detect import FORMATS, knows_tools
from jan_serve.chat.formats.marked_json import HERMES
from jan_serve.chat.text_stream import Steps
from jan_serve.core.events import ReasoningDelta, TextDelta, TokenInfo, ToolCallDelta
from tests.unit.chat.formats.answers import TOOLS, Answer, Call, parse, parse_everywhere

pytestmark = pytest.mark.drawn

THOUGHT = Thought(opens=("<think>\n", "<reason>"), closes=("</think>",))


@pytest.mark.parametrize(
    ("signature", "template", "matches"),
    [
        (Signature(), "", True),
        (Signature(all_of=("a", "b")), "b a", True),
        (Signature(all_of=("a", "b")), "a", False),
        (Signature(any_of=("a", "b")), "b", True),
        (Signature(any_of=("a", "b")), "c", False),
        (Signature(all_of=("a",), none_of=("b",)), "a", True),
        (Signature(all_of=("a",), none_of=("b",)), "ab", False),
        (Signature(all_of=("a",), any_of=("b", "c"), none_of=("d",)), "ac", True),
    ],
)
def test_signatures(signature: Signature, template: str, matches: bool) -> None:
    assert signature.matches(template) is matches


@pytest.mark.parametrize(
    ("template", "writes"), [("x<think>y", True), ("</think>", True), ("think", False), (None, False)]
)
def test_whether_a_template_writes_thoughts(template: str | None, writes: bool) -> None:
    """White space around a marker may be written apart from it."""
    assert THOUGHT.is_in(template) is writes


@pytest.mark.parametrize(
    ("prompt", "opens"),
    [
        ("Hi<think>", True),
        ("Hi<think>\n\n", True),
        ("Hi<reason>", True),
        ("<think>Hi", False),
        ("<think></think>", False),
        ("", False),
    ],
)
def test_whether_the_prompt_begins_the_thought(prompt: str, opens: bool) -> None:
    assert replace(HERMES, thought=THOUGHT).prompt_opens_thought(prompt) is opens


def test_a_format_without_thoughts_begins_none() -> None:
    assert not replace(HERMES, thought=None).prompt_opens_thought("<think>")


def test_format_names_are_unique() -> None:
    names = [chat_format.name for chat_format in FORMATS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("template", "knows"),
    [
        (None, False),
        ("", False),
        ("{% if tools %}x{% endif %}", True),
        ("{{ tools | tojson }}", True),
        ("{%- for tool in available_tools -%}", True),
        ("You have tools. {{ messages }}", False),
        ("{{ 'no tools here' }}", False),
        ("{{ message.tools }}", False),
    ],
)
def test_templates_that_show_tools(template: str | None, knows: bool) -> None:
    assert knows_tools(template) == knows


BY_NAME = {chat_format.name: chat_format for chat_format in FORMATS}

OSLO_JSON = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
SUM_JSON = '{"name": "add", "arguments": {"values": [1, 2]}}'


def test_runaway_nesting_ends_the_arguments() -> None:
    text = '<tool_call>{"name": "now", "arguments": ' + "[" * 600 + "</tool_call>."
    answer = parse(BY_NAME["hermes"], [text])
    assert (answer.text, answer.calls) == (".", (Call("now", "[" * 600),))


def test_deltas_keep_the_order_of_the_answer() -> None:
    answer = parse_everywhere(
        BY_NAME["hermes"],
        f"<think>a</think>b<tool_call>{OSLO_JSON}</tool_call>c<tool_call>{SUM_JSON}</tool_call>",
    )
    assert answer.order == ("reasoning", "text", "call 0", "text", "call 1")


@pytest.mark.parametrize(
    ("chat_format", "answer", "text"),
    [
        ("hermes", "<think>\na\n</think>\n\nb", "<think>\na\n</think>\n\nb"),
        ("hermes", "<think>a", "<think>a"),
        ("mistral-args", "[THINK]a[/THINK]b", "[THINK]a[/THINK]b"),
        (
            "gpt-oss",
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b",
            "<|channel|>analysis<|message|>a<|end|>\n\nb",
        ),
    ],
)
def test_thoughts_stay_in_the_text_on_request(chat_format: str, answer: str, text: str) -> None:
    assert parse_everywhere(BY_NAME[chat_format], answer, split_thoughts=False) == Answer(
        text, "", (), ("text",)
    )


def test_without_split_a_call_inside_a_thought_is_text() -> None:
    text = f"<think><tool_call>{OSLO_JSON}</tool_call></think>b"
    assert parse_everywhere(BY_NAME["hermes"], text, split_thoughts=False).calls == ()


def feed_all(chat_format: ChatFormat, pieces: list[str]) -> list[TextDelta | ReasoningDelta | ToolCallDelta]:
    parser = StreamParser(chat_format, lambda name, own: "id", tools=TOOLS)
    return [delta for piece in pieces for delta in parser.feed(piece)] + parser.finish()


def test_text_streams_except_possible_markers() -> None:
    parser = StreamParser(BY_NAME["hermes"], lambda name, own: "id", tools=TOOLS)
    assert parser.feed("Hel") == [TextDelta(0, "Hel")]
    assert parser.feed("lo <") == [TextDelta(0, "lo")]
    assert parser.feed("b>") == [TextDelta(0, " <b>")]
    assert parser.feed(" <tool_c") == []
    assert parser.finish() == [TextDelta(0, " <tool_c")]


def test_a_call_is_announced_with_its_name_and_streams_its_arguments() -> None:
    pieces = [
        '<tool_call>{"name": "get_weather", "argu',
        'ments": ',
        '{"ci',
        'ty": "Os',
        'lo"}',
        "}</tool_call>",
    ]
    assert feed_all(BY_NAME["hermes"], pieces) == [
        ToolCallDelta(0, 0, "id", "get_weather", '{"ci'),
        ToolCallDelta(0, 0, arguments='ty": "Os'),
        ToolCallDelta(0, 0, arguments='lo"}'),
    ]


def test_the_text_of_an_element_streams() -> None:
    pieces = ["<tool_call><function=get_weather><parameter=city>", 'Os"', "lo</para", "meter></function>"]
    assert feed_all(BY_NAME["qwen3-coder"], pieces) == [
        ToolCallDelta(0, 0, "id", "get_weather", '{"city": '),
        ToolCallDelta(0, 0, arguments='"Os\\"'),
        ToolCallDelta(0, 0, arguments="lo"),
        ToolCallDelta(0, 0, arguments='"}'),
    ]


def token(number: int) -> TokenInfo:
    return TokenInfo(number, b"x")


def test_no_token_is_lost() -> None:
    pieces = ["<think>", "a", "</think>", "\n", "b", '<tool_call>{"name": "now"', "}</tool_call>"]
    parser = StreamParser(BY_NAME["hermes"], lambda name, own: "id", tools=TOOLS)
    deltas = [delta for at, piece in enumerate(pieces) for delta in parser.feed(piece, (token(at),))]
    deltas += parser.finish()
    assert [
        (type(delta).__name__, [info.id for info in delta.tokens])
        for delta in deltas
        if not isinstance(delta, ToolCallDelta)
    ] == [("ReasoningDelta", [0, 1]), ("TextDelta", [2, 3, 4]), ("TextDelta", [5, 6])]
    assert deltas[-1] == TextDelta(0, "", (token(5), token(6)))


def test_ids_come_from_the_factory() -> None:
    parser = StreamParser(BY_NAME["hermes"], lambda name, own: f"id of {name}", tools=TOOLS)
    deltas = parser.feed(f"<tool_call>{OSLO_JSON}</tool_call>") + parser.finish()
    assert deltas == [ToolCallDelta(0, 0, "id of get_weather", "get_weather", '{"city": "Oslo"}')]
    assert parser.calls == 1


PIECES = st.lists(
    st.sampled_from(
        sorted(
            {
                piece
                for chat_format in FORMATS
                for piece in (
                    *chat_format.calls.triggers,
                    *chat_format.special_tokens,
                    *(part for part in chat_format.calls.call if isinstance(part, str)),
                    chat_format.calls.opening or " ",
                    chat_format.calls.closing or "\n",
                )
            }
            | {
                "get_weather",
                "now",
                "all\n",
                '{"city": "Oslo"}',
                "{}",
                '"',
                "\\",
                "[",
                "]",
                "a",
                "é",
                "2",
                "</think>",
            }
        )
    ),
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(chat_format=st.sampled_from(FORMATS), pieces=PIECES, data=st.data())
def test_cuts_do_not_change_the_answer(
    chat_format: ChatFormat, pieces: list[str], data: st.DataObject
) -> None:
    text = "".join(pieces)
    at = data.draw(st.integers(0, len(text)))
    whole = parse(chat_format, [text])
    assert parse(chat_format, list(text)) == whole
    assert parse(chat_format, [text[:at], "", text[at:]]) == whole
    assert parse(chat_format, pieces) == whole


@settings(max_examples=100, deadline=None)
@given(chat_format=st.sampled_from(FORMATS), text=st.text(st.characters(exclude_categories=["Cs"])))
def test_text_without_markers_is_kept(chat_format: ChatFormat, text: str) -> None:
    """Text without a marker is passed on whole; white space at the ends of a thought-free answer too."""
    if any(mark in text for mark in "<[>{`"):
        return
    answer = parse(chat_format, [chat_format.text_opens + text])
    assert answer.text + answer.reasoning == text


def test_a_parser_that_waits_after_the_end_raises() -> None:
    def read(context: StreamParser) -> Steps[None]:
        while True:
            yield

    parser = StreamParser(replace(BY_NAME["hermes"], parse=read), lambda name, own: "id")
    parser.feed("a")
    with pytest.raises(RuntimeError, match="after the end"):
        parser.finish()

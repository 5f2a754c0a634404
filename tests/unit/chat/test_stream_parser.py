"""StreamParser: deltas, their order, held text; cuts do not change the result."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from jan_serve.chat.chat_format import ChatFormat, ParseContext
from jan_serve.chat.detect import FORMATS
from jan_serve.chat.stream_parser import StreamParser
from jan_serve.chat.text_stream import Steps
from jan_serve.core.events import ReasoningDelta, TextDelta, TokenInfo, ToolCallDelta
from tests.unit.chat.formats.answers import TOOLS, Answer, Call, parse, parse_everywhere

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
    def read(chat_format: ChatFormat, context: ParseContext) -> Steps[None]:
        while True:
            yield

    parser = StreamParser(replace(BY_NAME["hermes"], parse=read), lambda name, own: "id")
    parser.feed("a")
    with pytest.raises(RuntimeError, match="after the end"):
        parser.finish()

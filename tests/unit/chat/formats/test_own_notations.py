"""copy_members: elements inside elements as JSON, by the types of the schema."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.chat.chat_format import StreamParser
from jan_serve.chat.formats.own_notations import MAX_DEPTH, Element, copy_members
from jan_serve.chat.text_stream import Steps
from tests.unit.chat.formats.answers import parse_everywhere
from tests.unit.chat.parsers.syntax import with_parser

pytestmark = pytest.mark.drawn

SCHEMA: dict[str, Any] = {
    "properties": {
        "s": {"type": "string"},
        "n": {"type": "integer"},
        "list": {"type": "array", "items": {"type": "string"}},
        "o": {"type": "object", "properties": {"n": {"type": "number"}}},
        "ref": {"$ref": "#/$defs/s"},
    },
    "$defs": {"s": {"type": "string"}},
}


def arguments(text: str, schema: object = SCHEMA, prefix: str = "") -> tuple[str, str]:
    """The arguments of one call, and the text that follows."""

    def read(context: StreamParser) -> Steps[None]:
        context.open_call("now")
        yield from copy_members(
            context.stream, context.out.arguments, prefix, f"{prefix}</call>", Element(schema, schema)
        )

    answer = parse_everywhere(with_parser(read), text)
    return answer.calls[0].arguments, answer.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("</call>", "{}"),
        ("<s>5</s> <n>5</n>\n</call>", '{"s": "5", "n": 5}'),
        ("<ref>5</ref></call>", '{"ref": "5"}'),
        ('<s>a "b" <c>\n</s></call>', '{"s": "a \\"b\\" <c>\\n"}'),
        ("<s></s><n></n><list></list><o></o></call>", '{"s": "", "n": {}, "list": [], "o": {}}'),
        ("<list> <item>1</item> <item>b</item> </list></call>", '{"list": ["1", "b"]}'),
        ("<o><n>1.5</n><x>y</x></o></call>", '{"o": {"n": 1.5, "x": "y"}}'),
        ("<s>a</s><s>b</s><n>1</n><s>c</s></call>", '{"s": "a", "n": 1}'),
        ("<o><n>1</n><n>2</n><x>y</x></o><o><n>3</n></o></call>", '{"o": {"n": 1, "x": "y"}}'),
        ("<x><item><a>1</a><a>2</a></item><item><a>3</a></item></x></call>", '{"x": [{"a": 1}, {"a": 3}]}'),
        ("<list><item>a</item></list><list><item>b</item></list></call>", '{"list": ["a"]}'),
        ("<s>a</s><s>b</call>", '{"s": "a"'),
        ("<s>a</s><list><item>b</item></list><list><item>c", '{"s": "a", "list": ["b"]'),
        ("<list><item>a</item>", '{"list": ["a"'),
        ("<s>a", '{"s": "a'),
        ("text", "{"),
    ],
)
def test_members(text: str, expected: str) -> None:
    assert arguments(text)[0] == expected


def test_each_tag_has_the_prefix() -> None:
    assert arguments("]<s>a</s>b]</s>]</call>", prefix="]")[0] == '{"s": "a</s>b"}'


def test_nesting_has_a_limit() -> None:
    """The reader recurses."""
    deep = MAX_DEPTH + 5
    read, _ = arguments("<a>" * deep + "1" + "</a>" * deep + "</call>", {})
    assert read == '{"a": ' * (MAX_DEPTH + 1)

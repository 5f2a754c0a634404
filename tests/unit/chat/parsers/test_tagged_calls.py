"""TaggedCalls: each argument between tags, as JSON of the type that the tool's schema or the tag names."""

from __future__ import annotations

import pytest

from jan_serve.chat.parsers.marked_calls import JsonCalls
from jan_serve.chat.parsers.tagged_calls import TaggedCalls
from tests.unit.chat.parsers.syntax import text_and_calls

TAGS = TaggedCalls(
    call_opens=("<function=",),
    name_end=">",
    argument_open="<parameter=",
    key_end=">",
    value_open="",
    value_close="</parameter>",
    call_close="</function>",
    closers=("</call>",),
    or_json=JsonCalls(closers=("</call>",)),
)
ATTRIBUTES = TaggedCalls(
    name_end=">",
    argument_open='<arg name="',
    key_end='"',
    value_open=">",
    value_close="</arg>",
    call_close="</call>",
    section=("<![CDATA[", "]]>"),
)
HEAD = "<call><function=get_weather>"
NAMED = '<call>get_weather><arg name="city"'


@pytest.mark.parametrize(
    ("syntax", "answer", "text", "calls"),
    [
        (TAGS, f"{HEAD}\n<parameter=city>\nOslo\n</parameter>\n</function>\n</call>.", ".", ['{"city": "Oslo"}']),
        (TAGS, f"{HEAD}<parameter=city>a\n\n</parameter></function>", "", ['{"city": "a\\n"}']),
        (TAGS, f"{HEAD}<parameter=city>5</parameter><parameter=days>5</parameter></function>", "",
         ['{"city": "5", "days": 5}']),
        (TAGS, f"{HEAD}</function></call>", "", ["{}"]),
        (TAGS, f"{HEAD}<parameter=city>Oslo</parameter></call>.", ".", ['{"city": "Oslo"}']),
        (TAGS, f"{HEAD}</function> <function=get_weather></function></call>.", ".", ["{}", "{}"]),
        (TAGS, f"{HEAD}<parameter=city>a</parameter><parameter=city>\nb\n</parameter><parameter=days>5</parameter>"
         "<parameter=days>6</parameter></function></call>.", ".", ['{"city": "a", "days": 5}']),
        (TAGS, f"{HEAD}<parameter=city>a</parameter><parameter=city>b", "", ['{"city": "a"']),
        (TAGS, f"{HEAD}<parameter=city>a</parameter><parameter=ci", "", ['{"city": "a"']),
        (TAGS, f'{HEAD}<parameter=opts>{{"a":1,"a":2}}</parameter></function></call>', "", ['{"opts": {"a": 1}}']),
        (TAGS, f"{HEAD}<parameter=city>Os", "", ['{"city": "Os']),
        (TAGS, f"{HEAD}<parameter=city>\nOslo\n</function>\n</call>.", ".", ['{"city": "Oslo"}']),
        (TAGS, f"{HEAD}<parameter=city>a</parameter><parameter=days>5\n</function></call>.", ".",
         ['{"city": "a", "days": 5}']),
        (TAGS, f"{HEAD}<parameter=city>a\n</function>\nb</parameter></function></call>.", ".",
         ['{"city": "a\\n</function>\\nb"}']),
        (TAGS, "<call><function=get_weather and", "<call><function=get_weather and", []),
        (TAGS, "<call><function=></function>", "<call><function=></function>", []),
        (TAGS, '<call>{"name": "get_weather"}</call>', "", ["{}"]),
        (ATTRIBUTES, f"{NAMED}>Oslo</arg></call>.", ".", ['{"city": "Oslo"}']),
        (ATTRIBUTES, f'{NAMED} string="false">[1]</arg></call>.', ".", ['{"city": [1]}']),
        (ATTRIBUTES, f'{NAMED} type="string">1</arg></call>.', ".", ['{"city": "1"}']),
        (ATTRIBUTES, f"{NAMED}><![CDATA[</arg>]]></arg></call>.", ".", ['{"city": "</arg>"}']),
        (ATTRIBUTES, f'{NAMED}>a</arg><arg name="city"><![CDATA[</arg>]]></arg></call>.', ".", ['{"city": "a"}']),
        (ATTRIBUTES, f'{NAMED} type="number">1</arg><arg name="city" 2}}</call>.', ".", ['{"city": 1']),
        (ATTRIBUTES, f"{NAMED} ?Oslo</call>.", ".", ['{"city":  ?Oslo']),
    ],
)  # fmt: skip
def test_calls(syntax: TaggedCalls, answer: str, text: str, calls: list[str]) -> None:
    assert text_and_calls(syntax, answer) == (text, [("get_weather", arguments) for arguments in calls])

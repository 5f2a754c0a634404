"""Detection of formats and of templates that show tools."""

from __future__ import annotations

import pytest

from jan_serve.chat.detect import FORMATS, knows_tools


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

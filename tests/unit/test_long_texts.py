"""A text of many beginnings without their ends takes no longer than another text, wherever the event loop reads it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import pytest

from jan_serve.api.chats.imports import read_chats
from jan_serve.chat.detect import knows_tools
from jan_serve.dialects.anthropic.claude_clients import cut_billing_line
from jan_serve.dialects.shared.ignored_fields import IgnoredFields
from jan_serve.dialects.tgi.generate.parse import prompt_with_images
from jan_serve.dialects.tgi.generate.routes import spans
from jan_serve.http.strict_json import MAX_MEMBERS
from tests.support.engine.fake_client import fake_facts

CHARS = 1 << 18
LONGEST_S = 5.0
"""Most seconds of CPU time. In the square of the length it would be half a minute and more."""
FACTS: Final = fake_facts()


def _imported(text: str) -> None:
    read_chats({"id": "c", "chat": {"messages": [{"id": "a", "role": "assistant", "content": text}]}})


def _images(text: str) -> None:
    prompt_with_images(FACTS, text, add_special=True)


def _spans(text: str) -> None:
    pieces = [text[at : at + 1].encode() for at in range(len(text))]
    spans(text, range(len(pieces)), pieces)
    spans(text, range(len(pieces)), [b"x"] * len(pieces))


READERS: dict[str, tuple[Callable[[str], object], tuple[str, ...]]] = {
    "images of TGI's Markdown": (_images, ("![](", "![](a ", "![]()![](")),
    "the code of a template": (knows_tools, ("{{", "{%", "{{}", "{% a }", "{{ '", "{{ '' }}", "{#")),
    "the reasoning of an export": (
        _imported,
        (
            '<details type="reasoning"',
            '<details type="reasoning"> ',
            '<details type="reasoning"><summary>',
            '<details type="reasoning"><summary></summary>',
            '<details type="reasoning"><summary></summary></details',
            "</details> ",
        ),
    ),
    "the tokens of TGI's prompts": (_spans, (" ", "\n", "\r\n")),
    "a billing line": (
        cut_billing_line,
        ("x-anthropic-billing-header: a=", "x-anthropic-billing-header:\n", " \n"),
    ),
}


@pytest.mark.parametrize(
    ("reader", "unit"), [(name, unit) for name, (_, units) in READERS.items() for unit in units]
)
def test_beginnings_without_an_end(reader: str, unit: str) -> None:
    text = unit * (CHARS // len(unit))
    started = time.process_time()
    READERS[reader][0](text)
    assert time.process_time() - started < LONGEST_S


@pytest.mark.parametrize("quote", ["'", '"'])
def test_escapes_after_a_quote_that_nothing_closes(quote: str) -> None:
    started = time.process_time()
    assert not knows_tools("{{ " + quote + ("\\" + quote) * (CHARS // 2) + " }}")
    assert time.process_time() - started < LONGEST_S


def test_as_many_unknown_fields_as_a_body_may_have() -> None:
    known = {f"temperature_{number}": None for number in range(64)}
    body = {f"temperatur{number}": 1 for number in range(MAX_MEMBERS)}
    started = time.process_time()
    assert IgnoredFields().warnings(body, known)
    assert time.process_time() - started < LONGEST_S

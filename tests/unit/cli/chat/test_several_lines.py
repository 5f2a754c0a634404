"""Which input is whole, and what it means."""

from __future__ import annotations

import pytest

from jan_serve.cli.chat.several_lines import is_whole, message_of


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("", ""),
        ("one line", "one line"),
        ("  blanks  ", "blanks"),
        ("two\nlines", "two\nlines"),
        ("joined\\\nlines", "joined\nlines"),
        ("a backslash \\\\", "a backslash \\\\"),
        ('"""one\ntwo"""', "one\ntwo"),
        ('"""\none\ntwo\n"""', "one\ntwo"),
        ('"""/not a command"""', "/not a command"),
        ('""""""', ""),
        ('say """this"""', 'say """this"""'),
    ],
)
def test_whole(text: str, meant: str) -> None:
    assert is_whole(text)
    assert message_of(text) == meant


@pytest.mark.parametrize(
    "text", ['"""', '"""one', '"""one\ntwo', '""""', "joined\\", "a\\\nb\\", "three \\\\\\"]
)
def test_not_whole(text: str) -> None:
    assert not is_whole(text)

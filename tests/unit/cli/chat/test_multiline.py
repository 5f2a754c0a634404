"""Complete and incomplete inputs."""

from __future__ import annotations

import pytest

from jan_serve.cli.chat.multiline import is_complete, message_of


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
def test_complete_input(text: str, meant: str) -> None:
    assert is_complete(text)
    assert message_of(text) == meant


@pytest.mark.parametrize(
    "text", ['"""', '"""one', '"""one\ntwo', '""""', "joined\\", "a\\\nb\\", "three \\\\\\"]
)
def test_incomplete_input(text: str) -> None:
    assert not is_complete(text)

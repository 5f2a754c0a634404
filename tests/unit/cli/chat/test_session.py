"""A chat: its loop and its input."""

from __future__ import annotations

import pytest

from jan_serve.cli.chat.session import is_complete, message_of
from jan_serve.cli.chat.slash_commands import ChatSession
from tests.unit.cli.chat.support import chatted


def test_the_next_request_contains_the_conversation(
    session: ChatSession, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = chatted(session, capsys, "Please !echo", "/system Be brief.", "And now?")
    assert "Please !echo" in out
    assert out.count("Be brief.") == 1
    assert "And now?" in out
    assert len(session.conversation.messages) == 4


def test_blank_input_and_ctrl_c_send_no_request(
    session: ChatSession, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = chatted(session, capsys, "  ", "", KeyboardInterrupt)
    assert out == ""
    assert err == "Ctrl-D or /bye leaves.\n"


@pytest.mark.parametrize("word", ["/bye", "/exit", "/QUIT"])
def test_leaving(session: ChatSession, capsys: pytest.CaptureFixture[str], word: str) -> None:
    assert chatted(session, capsys, word, "!say never") == ("", "")


def test_a_failed_request_is_reported_and_not_kept(
    session: ChatSession, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = chatted(session, capsys, "!fail overloaded too much", "!say fine")
    assert "error: " in err
    assert out == "fine\n"
    assert [message["content"] for message in session.conversation.messages] == ["!say fine", "fine"]


def test_a_failure_within_an_answer_ends_the_line(
    session: ChatSession, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = chatted(session, capsys, "!fail-after 2 engine_crashed")
    assert out == "0 1\n"
    assert "error: " in err
    assert session.conversation.messages == []


def test_an_incomplete_answer_is_noted(session: ChatSession, capsys: pytest.CaptureFixture[str]) -> None:
    _, err = chatted(session, capsys, "/set max_tokens 3", "!stream 9")
    assert "The answer is incomplete" in err


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

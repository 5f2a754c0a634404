"""An interactive chat with scripted input, against fake engines: `!echo` answers the whole prompt."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from pydantic import SecretStr

from jan_serve.cli.chat.conversation import Conversation
from jan_serve.cli.chat.session import chat
from jan_serve.cli.chat.slash_commands import COMMANDS, Desk
from jan_serve.cli.client.server_connection import ServerConnection
from jan_serve.cli.output import Output
from jan_serve.config import ServerAddress
from tests.support.served_app import ServedApp

Keys = str | type[BaseException]


class Typed:
    """Inputs, or the exceptions of keys; Ctrl-D at the end."""

    def __init__(self, *inputs: Keys) -> None:
        self._inputs = list(inputs)

    def read(self, *, offered: str = "") -> str:
        if not self._inputs:
            raise EOFError
        given = self._inputs.pop(0)
        if isinstance(given, str):
            return given
        raise given


@pytest.fixture
def desk(server: ServedApp) -> Generator[Desk]:
    with ServerConnection(ServerAddress(server.url, "--url", SecretStr("k"), "default")) as connection:
        yield Desk(connection, Conversation("alpha"), Output())


def said(desk: Desk, capsys: pytest.CaptureFixture[str], *inputs: Keys) -> tuple[str, str]:
    """What the chat wrote to the two streams."""
    desk.output = Output()
    capsys.readouterr()
    chat(desk, Typed(*inputs))
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_an_answer_and_its_place_in_the_next_prompt(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = said(desk, capsys, "Please !echo", "/system Be brief.", "And now?")
    assert "Please !echo" in out
    assert out.count("Be brief.") == 1
    assert "And now?" in out
    assert len(desk.conversation.messages) == 4


def test_blank_input_and_ctrl_c_ask_nothing(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = said(desk, capsys, "  ", "", KeyboardInterrupt)
    assert out == ""
    assert err == "Ctrl-D or /bye leaves.\n"


@pytest.mark.parametrize("word", ["/bye", "/exit", "/QUIT"])
def test_leaving(desk: Desk, capsys: pytest.CaptureFixture[str], word: str) -> None:
    assert said(desk, capsys, word, "!say never") == ("", "")


def test_a_failure_is_told_and_not_remembered(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = said(desk, capsys, "!fail overloaded too much", "!say fine")
    assert "error: " in err
    assert out == "fine\n"
    assert [message["content"] for message in desk.conversation.messages] == ["!say fine", "fine"]


def test_a_failure_in_the_middle_ends_the_line(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = said(desk, capsys, "!fail-after 2 engine_crashed")
    assert out == "0 1\n"
    assert "error: " in err
    assert desk.conversation.messages == []


def test_parameters(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    _, err = said(desk, capsys, "/set temperature 0.5", "/set top_k=3", "/set", "/unset top-k", "/set sed 1")
    assert "temperature = 0.5\ntop_k = 3\n" in err
    assert "randomness; 0 always takes the most likely token = 0.5" in err
    assert "As the server has it: top_k." in err
    assert "Did you mean seed?" in err
    assert desk.conversation.parameters == {"temperature": 0.5}
    _, err = said(desk, capsys, "/set temperature hot", "!say x")
    assert "temperature" in err
    _, err = said(desk, capsys, "/unset", "/unset nope")
    assert desk.conversation.parameters == {}
    assert "There is no parameter 'nope'." in err


def test_the_system_message(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    _, err = said(desk, capsys, "/system", "/system Be kind.", "/system", "/system off", "/system")
    lines = err.splitlines()
    assert lines == [
        "There is no system message.",
        "The system message is set.",
        "Be kind.",
        "No system message from now on.",
        "There is no system message.",
    ]


def test_a_format(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    _, err = said(desk, capsys, "/format", "/format json", "/format", "/format off", "/format no.json")
    assert "free text" in err
    assert "Answers follow json from now on.\njson\nAnswers are free text." in err
    assert "There is no file no.json" in err
    assert desk.conversation.answer_format is None


def test_models(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    _, err = said(desk, capsys, "/models", "/model beta", "/model", "/model nope")
    assert "  beta-7b\n" in err
    assert "Answers come from beta-7b now.\nbeta\n" in err
    assert "The model `nope` does not exist." in err
    assert desk.conversation.model == "beta"


def test_asking_again_and_taking_back(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = said(desk, capsys, "/retry", "/undo", "!say hello", "/retry", "/undo", "/undo")
    assert out == "hello\nhello\n"
    assert err.count("There is no question to ask again.") == 1
    assert err.count("There is nothing to take back.") == 2
    assert "Taken back: !say hello" in err
    assert desk.conversation.messages == []


def test_clear(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    said(desk, capsys, "!say hello", "/clear")
    assert desk.conversation.messages == []


def test_files(desk: Desk, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    _, err = said(
        desk, capsys, "!say hello", f"/save {file}", "/clear", f"/load {file}", "/save", "/load /nope"
    )
    assert f"Saved to {file}." in err
    assert "1 questions and answers from" in err
    assert "Name a file." in err
    assert "cannot read /nope" in err
    assert desk.conversation.messages[1]["content"] == "hello"


def test_statistics(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    _, err = said(desk, capsys, "/stats", "!say hello", "/stats", "/stats on", "!say more")
    assert "no answer so far" in err
    assert err.count("of answer") == 2


def test_help_names_every_command(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    _, err = said(desk, capsys, "/help")
    for command in COMMANDS.values():
        assert command.usage in err and command.meaning in err
    _, err = said(desk, capsys, "/hepl")
    assert "There is no command /hepl." in err and "Did you mean /help?" in err


def test_an_answer_that_is_cut(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    _, err = said(desk, capsys, "/set max_tokens 3", "!stream 9")
    assert "The answer was cut" in err

"""Commands of a chat, such as `/set`."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from jan_serve.cli.chat.slash_commands import COMMANDS, ChatSession
from tests.support.media.pdfs import pdf
from tests.support.media.pictures import data_url, picture
from tests.unit.cli.chat.support import chatted


def test_parameters(session: ChatSession, capsys: pytest.CaptureFixture[str]) -> None:
    _, err = chatted(
        session, capsys, "/set temperature 0.5", "/set top_k=3", "/set", "/unset top-k", "/set sed 1"
    )
    assert "temperature = 0.5\ntop_k = 3\n" in err
    assert "randomness; 0 always picks the most likely token = 0.5" in err
    assert "Reset to the default of the server: top_k." in err
    assert "Did you mean seed?" in err
    assert session.conversation.parameters == {"temperature": 0.5}
    _, err = chatted(session, capsys, "/set temperature hot", "!say x")
    assert "temperature" in err
    _, err = chatted(session, capsys, "/unset", "/unset nope")
    assert session.conversation.parameters == {}
    assert "There is no parameter 'nope'." in err


def test_the_system_message(session: ChatSession, capsys: pytest.CaptureFixture[str]) -> None:
    _, err = chatted(session, capsys, "/system", "/system Be kind.", "/system", "/system off", "/system")
    lines = err.splitlines()
    assert lines == [
        "There is no system message.",
        "The system message is set.",
        "Be kind.",
        "The system message is removed.",
        "There is no system message.",
    ]


def test_a_format(session: ChatSession, capsys: pytest.CaptureFixture[str]) -> None:
    _, err = chatted(session, capsys, "/format", "/format json", "/format", "/format off", "/format no.json")
    assert "free text" in err
    assert "Answers follow json.\njson\nAnswers are free text." in err
    assert "There is no file no.json" in err
    assert session.conversation.answer_format is None


def test_models(session: ChatSession, capsys: pytest.CaptureFixture[str]) -> None:
    _, err = chatted(session, capsys, "/models", "/model beta", "/model", "/model nope")
    assert "  beta-7b\n" in err
    assert "The model is beta-7b.\nbeta\n" in err
    assert "The model `nope` does not exist." in err
    assert session.conversation.model == "beta"


def test_retry_and_undo(session: ChatSession, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = chatted(session, capsys, "/retry", "/undo", "!say hello", "/retry", "/undo", "/undo")
    assert out == "hello\nhello\n"
    assert err.count("There is no question to repeat.") == 1
    assert err.count("There is no question to remove.") == 2
    assert "Removed: !say hello" in err
    assert session.conversation.messages == []


def test_clear(session: ChatSession, capsys: pytest.CaptureFixture[str]) -> None:
    chatted(session, capsys, "!say hello", "/clear")
    assert session.conversation.messages == []


def test_files(session: ChatSession, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    _, err = chatted(
        session, capsys, "!say hello", f"/save {file}", "/clear", f"/load {file}", "/save", "/load /nope"
    )
    assert f"Saved to {file}." in err
    assert "Loaded 2 messages from" in err
    assert "Name a file." in err
    assert "cannot read /nope" in err
    assert session.conversation.messages[1]["content"] == "hello"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no permission bits")
def test_a_saved_chat_is_private_unless_its_file_is_there_already(
    session: ChatSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    new, shared = tmp_path / "new.json", tmp_path / "shared.json"
    shared.touch()
    shared.chmod(0o664)
    before = os.umask(0)
    try:
        chatted(session, capsys, "!say hello", f"/save {new}", f"/save {shared}")
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (new, shared)] == [0o600, 0o664]
    assert new.read_bytes() == shared.read_bytes() != b""


def test_statistics(session: ChatSession, capsys: pytest.CaptureFixture[str]) -> None:
    _, err = chatted(session, capsys, "/stats", "!say hello", "/stats", "/stats on", "!say more")
    assert "no answer yet" in err
    assert err.count("answer tokens") == 2


def test_help_names_every_command(session: ChatSession, capsys: pytest.CaptureFixture[str]) -> None:
    _, err = chatted(session, capsys, "/help")
    for command in COMMANDS.values():
        assert command.usage in err and command.meaning in err
    _, err = chatted(session, capsys, "/hepl")
    assert "There is no command /hepl." in err and "Did you mean /help?" in err


def test_files_go_with_the_next_question(
    session: ChatSession, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file, report, junk = tmp_path / "a.png", tmp_path / "b.pdf", tmp_path / "c.bin"
    file.write_bytes(picture())
    report.write_bytes(pdf("words"))
    junk.write_bytes(b"\xff\0")
    _, err = chatted(session, capsys, f"/image {file}", "/file", "/file off", "/file none.png", "/file")
    notes = [line.rpartition(" ")[2] for line in err.splitlines() if line.startswith("Files that go")]
    assert notes == ["1.", "1.", "0.", "0."]
    assert "cannot read none.png" in err
    _, err = chatted(session, capsys, f"/file {file}", f"/file {report}", f"/file {junk}")
    assert "is no PDF, no text in UTF-8, and: " in err
    image, document = session.conversation.files
    assert image["image_url"] == {"url": data_url(picture())}
    assert document["file"]["filename"] == "b.pdf"
    report.write_text("words of a text")
    out, _ = chatted(session, capsys, "/file off", f"/file {report}", "!echo")
    assert "b.pdf:\n\nwords of a text" in out

"""Standard input that does not end."""

from __future__ import annotations

import io
import os
import select
import sys
import threading
from pathlib import Path

import pytest

from jan_serve.cli.input import question_keys, read_input, silent_keys
from tests.support.processes import wait_until


def test_waiting_for_an_open_pipe_is_noted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("jan_serve.cli.input._SILENCE_S", 0.0)
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as pipe:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(pipe, encoding="utf-8"))
        found: list[str] = []
        reader = threading.Thread(target=lambda: found.append(read_input()))
        reader.start()
        wait_until(lambda: "Waiting for the end of standard input" in capsys.readouterr().err)
        os.write(writing, b"text")
        os.close(writing)
        reader.join(10)
    assert found == ["text"]


def test_available_text_is_read_without_a_note(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    os.write(writing, "é".encode())
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(pipe, encoding="utf-8"))
        assert read_input() == "é"
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(sys.platform == "win32", reason="no termios")
def test_keys_are_not_shown_while_a_text_streams_and_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    import pty
    import termios

    master, slave = pty.openpty()
    with os.fdopen(slave, "r", encoding="utf-8") as keyboard, os.fdopen(master, "wb", 0) as typist:
        monkeypatch.setattr(sys, "stdin", keyboard)
        before = termios.tcgetattr(keyboard)
        with silent_keys():
            assert not termios.tcgetattr(keyboard)[3] & termios.ECHO
            typist.write(b"the next question\n")
        assert termios.tcgetattr(keyboard) == before
        assert keyboard.readline() == "the next question\n"


@pytest.mark.skipif(sys.platform == "win32", reason="no termios")
def test_what_was_typed_before_a_question_does_not_answer_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import pty
    import termios

    master, slave = pty.openpty()
    with os.fdopen(slave, "r", encoding="utf-8") as keyboard, os.fdopen(master, "wb", 0) as typist:
        monkeypatch.setattr(sys, "stdin", keyboard)
        with silent_keys():
            typist.write(b"\n")
            assert select.select([keyboard], [], [], 60)[0]  # it has reached the terminal's other end
            with question_keys():
                assert termios.tcgetattr(keyboard)[3] & termios.ECHO
                typist.write(b"no\n")
                assert keyboard.readline() == "no\n"
            assert not termios.tcgetattr(keyboard)[3] & termios.ECHO


def test_without_a_terminal_nothing_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a\n")
    with (tmp_path / "text").open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        with silent_keys():
            assert file.readline() == "a\n"

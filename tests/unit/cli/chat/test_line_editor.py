"""Completion after a slash, and the history file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, InMemoryHistory

from jan_serve.cli.chat import line_editor


def completions(text: str) -> list[str]:
    completer = line_editor._CommandCompleter(lambda: ["alpha", "beta"])  # pyright: ignore[reportPrivateUsage]
    found = completer.get_completions(Document(text), CompleteEvent())
    return [text[: len(text) + each.start_position] + each.text for each in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/mod", ["/model", "/models"]),
        ("/model ", ["/model alpha", "/model beta"]),
        ("/model b", ["/model beta"]),
        ("/set temp", ["/set temperature"]),
        ("/unset temp", ["/unset temperature"]),
        ("/clear x", []),
        ("mod", []),
        ("text /mod", []),
        ("/model a\n/mod", []),
    ],
)
def test_commands_and_their_words_are_completed(text: str, expected: list[str]) -> None:
    assert completions(text) == expected


def history(path: Path | None) -> object:
    return line_editor._history(path)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.skipif(os.name != "posix", reason="file modes")
def test_the_history_is_the_users_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "history"
    assert isinstance(history(path), FileHistory)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_history_that_cannot_be_written_is_kept_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert isinstance(history(tmp_path / "file" / "history"), InMemoryHistory)
    assert isinstance(history(None), InMemoryHistory)


def test_a_long_history_loses_its_older_half_at_an_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jan_serve.cli.chat.line_editor._MAX_HISTORY_BYTES", 200)
    path = tmp_path / "history"
    writer = FileHistory(str(path))
    for number in range(20):
        writer.store_string(f"line {number}\n# not an entry")
    history(path)
    kept = list(FileHistory(str(path)).load_history_strings())
    assert kept[0] == "line 19\n# not an entry"
    assert 1 < len(kept) < 20
    assert kept == [f"line {number}\n# not an entry" for number in range(19, 19 - len(kept), -1)]

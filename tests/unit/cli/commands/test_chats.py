"""`chats`, and `run --continue`."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from jan_serve.cli.client.server_client import ServerClient
from tests.unit.cli.chat.support import stored
from tests.unit.cli.conftest import Run


def message(name: str, role: str, text: str) -> dict[str, Any]:
    return {"id": name, "role": role, "text": text}


CHAT: dict[str, Any] = {
    "id": "aaaa-1111", "title": "Weather", "folder": "work", "settings": {"system": "Be brief."},
    "messages": [message("q", "user", "!say cold"), message("a", "assistant", "It is cold.")],
}  # fmt: skip


def test_chats_are_listed_found_shown_deleted_and_restored(ask: Run, client: ServerClient) -> None:
    assert ask("chats").err == "There are no chats.\n"
    assert ask("chats", "search", "weath").err == "No chat has words that begin so.\n"
    client.post("/extras/chats/import", {"chats": [CHAT, {**CHAT, "id": "bbbb-2222", "title": "Other"}]})
    assert "Weather" in ask("chats").out and "aaaa-111" in ask("chats", "list").out
    assert "found" not in ask("chats").out and "found" in ask("chats", "search", "cold").out
    assert [chat["id"] for chat in json.loads(ask("chats", "search", "weath", "cold", "--json").out)] == [
        "aaaa-1111"
    ]
    assert ask("chats", "show", "aaaa").out == ">>> !say cold\n\nIt is cold.\n\n"
    deleted = ask("chats", "delete", "aaaa")
    assert (deleted.status, "chats restore aaaa-1111" in deleted.err) == (0, True)
    assert "Weather" not in ask("chats").out
    assert ask("chats", "restore", "aaaa-1111").err == "Weather is back.\n"
    assert "Weather" in ask("chats").out


@pytest.mark.parametrize("words", [("chats", "show", "aaaa"), ("run", "--continue", "alpha", "!say then")])
def test_an_answer_that_is_still_written_is_waited_for(
    ask: Run, client: ServerClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    asked = {"model": "alpha", "input": f"!gate {gate} 2", "background": True}
    response = client.post("/v1/responses", asked)["id"]
    growing = {**message("a", "assistant", ""), "response": response}
    client.post("/extras/chats/import", {"chats": [{**CHAT, "messages": [CHAT["messages"][0], growing]}]})
    stream = ServerClient.events

    def opened(self: ServerClient, *args: Any, **options: Any) -> Generator[dict[str, Any]]:
        for event in stream(self, *args, **options):
            yield event
            if "1" in event.get("delta", ""):
                gate.open("w").close()

    monkeypatch.setattr(ServerClient, "events", opened)
    ran = ask(*words)
    assert ran.status == 0, ran.err
    if words[0] == "chats":
        assert ran.out == ">>> !say cold\n\n0 1 done\n\n"
    else:
        assert "The server still writes an answer of this chat." in ran.err
        assert stored(client) == ["!say cold", "0 1 done", "!say then", "cold"]  # the first command counts
    chat = client.get("/extras/chats/aaaa-1111")
    assert [each["text"] for each in chat["messages"][:2]] == ["!say cold", "0 1 done"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("show", "zzzz"), "There is no chat 'zzzz'"),
        (("show", "aa"), "too short"),
        (("show", "aaaa"), "2 chats begin so"),
        (("show",), "needs an argument"),
        (("shew",), "none of list, show"),
        (("restore", "zzzz"), "There is no chat"),
        (("import", "missing.json"), "No such file"),
    ],
)
def test_what_cannot_be_done_is_said(
    ask: Run, client: ServerClient, words: tuple[str, ...], error: str
) -> None:
    client.post("/extras/chats/import", {"chats": [CHAT, {**CHAT, "id": "aaaa-2222"}]})
    ran = ask("chats", *words)
    assert (ran.status, ran.out) == (2, "")
    assert error in ran.err


@pytest.mark.parametrize("form", ["json", "zip"])
def test_an_export_comes_back_by_import(ask: Run, client: ServerClient, tmp_path: Path, form: str) -> None:
    client.post("/extras/chats/import", {"chats": [CHAT]})
    file = tmp_path / "conversations.json"
    assert ask("chats", "export", str(file)).status == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert "File exists" in ask("chats", "export", str(file)).err
    assert json.loads(ask("chats", "export").out) == json.loads(file.read_text())
    if form == "zip":
        with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
            archive.write(file, "x/conversations.json")
            archive.writestr("user.json", "{}")
        file = tmp_path / "export.zip"
    client.delete("/extras/chats/aaaa-1111")
    assert "1 chats are imported, 0 were there" in ask("chats", "import", str(file)).err
    assert json.loads(ask("chats", "import", str(file), "--json").out)["present"] == 1
    assert stored(client) == ["!say cold", "It is cold."]


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[]", b"PK\x03\x04", b"[" * 100_000])
def test_a_file_that_is_none_is_named(ask: Run, client: ServerClient, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(content)
    ran = ask("chats", "import", str(file))
    assert ran.status == 2 and "x.json" in ran.err and "Traceback" not in ran.err


def test_run_goes_on_with_the_last_chat_of_the_page(ask: Run, client: ServerClient) -> None:
    client.post("/extras/chats/import", {"chats": [CHAT]})
    answer = ask("run", "alpha", "--continue", "and", "wet?")
    assert (answer.status, answer.out) == (0, "cold\n")
    assert stored(client) == ["!say cold", "It is cold.", "and wet?", "cold"]
    ask("run", "alpha", "--chat", "aaaa", "again")
    assert ask("run", "alpha", "--chat", "zzzz", "x").status == 2
    (chat,) = client.get("/extras/chats")["data"]
    assert (chat["title"], chat["folder"], chat["messages"]) == ("Weather", "work", 6)


def test_continue_without_a_chat_says_so(ask: Run, client: ServerClient) -> None:
    ran = ask("run", "alpha", "--continue", "x")
    assert (ran.status, ran.out) == (2, "")
    assert "There is no chat yet" in ran.err

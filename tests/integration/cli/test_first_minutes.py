"""The first minutes of a person in a terminal of 80 columns, from an empty folder to a chat that goes on."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from jan_serve.resources import builtin_model, catalogue_file
from jan_serve.store.hub.references import Catalogue
from tests.support.processes import wait_until
from tests.support.servers.fake_hub import FakeHub, FakeRepo, Fault, running_hub
from tests.support.terminal import CTRL_C, CTRL_D, Terminal, terminal

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(builtin_model() is None, reason="there is no built-in model"),
    pytest.mark.skipif(os.name != "posix", reason="needs terminals"),
]

NAME, FULL_NAME = "qwen3-4b", "Qwen/Qwen3-4B-GGUF/Qwen3-4B-Q4_K_M"
COLUMNS = 80
LIMIT_S = 60.0
IMPATIENT = "§"
"""A key that nothing but the terminal's echo would show."""
QUESTION = "What does my note say?"


@pytest.fixture
def hub() -> Generator[FakeHub]:
    """Stops in the middle of the model until it is released."""
    model, entry = builtin_model(), Catalogue.read(catalogue_file()).find(NAME)
    assert model is not None and entry is not None
    content = model.read_bytes()
    with running_hub() as hub:
        hub.repos[entry.repo] = FakeRepo({entry.file: content})
        hub.file_faults.append(Fault(stall_at=len(content) // 2))
        yield hub


@pytest.fixture
def home(hub: FakeHub, tmp_path: Path) -> Path:
    """A folder where no server runs: nothing listens on port 1."""
    (tmp_path / "config.toml").write_text(
        f'data_dir = "data"\nmodels_dir = "models"\nhf_endpoint = "{hub.url}"\nthreads = 1\nport = 1\nn_ctx = 16384\n'
    )
    (tmp_path / "note.txt").write_text("My cat is named Ada.\n")
    return tmp_path


@contextlib.contextmanager
def ran(home: Path, *words: str) -> Generator[Terminal]:
    """A command that ends well, and leaves the terminal as it was."""
    command = [sys.executable, "-P", "-m", "jan_serve", *words]
    with terminal(command, {"JAN_SERVE_CONFIG": str(home / "config.toml")}, home, columns=COLUMNS) as shown:
        yield shown
        assert shown.end(LIMIT_S) == 0, shown.text
        assert shown.echoes
        assert "Traceback" not in shown.text


def printed(home: Path, *words: str) -> str:
    with ran(home, *words) as shown:
        pass
    return shown.text


def typed(chat: Terminal, line: str, answer: str) -> str:
    """Type a line at the prompt and wait for this answer and the next prompt; what was written since."""
    chat.see_prompt(">>>", limit_s=LIMIT_S)
    before = len(chat.text)
    chat.type(f"{line}\r")
    wait_until(lambda: answer in chat.text[before:], LIMIT_S)
    chat.see_prompt(">>>", limit_s=LIMIT_S)
    return chat.text[before:]


def fits(text: str) -> None:
    """No line of the table is longer than the terminal is wide."""
    rows = [line for line in text.splitlines() if line.startswith(" ")]
    assert rows
    assert [row for row in rows if len(row.rstrip()) > COLUMNS] == []


def test_from_an_empty_folder_to_a_chat_that_goes_on(home: Path, hub: FakeHub) -> None:
    with ran(home, "run", NAME) as shown:
        pulls(shown, hub)
        chats(shown)
        stops_an_answer(shown)
        shown.type(CTRL_D)
    with ran(home, "run", "--continue") as shown:
        shown.see(f"{FULL_NAME}: /help lists the commands", limit_s=LIMIT_S)
        shown.see_prompt(">>>", limit_s=LIMIT_S)
        shown.type(CTRL_D)
    assert f">>> [note.txt] {QUESTION}\n" in shown.text and ">>> Hello, who are you?" in shown.text
    assert shown.text.index("I am jan-tiny") < shown.text.index("/help lists the commands")
    finds_its_way(home)


def pulls(shown: Terminal, hub: FakeHub) -> None:
    shown.see(f"{NAME} is not here (2.5 GB). Download it? [Y/n]:", limit_s=LIMIT_S)
    assert shown.echoes
    shown.type("\r")
    wait_until(hub.stalled.is_set, LIMIT_S)
    shown.see("3.6 MB", limit_s=LIMIT_S)
    shown.type(IMPATIENT)
    assert not shown.echoes
    hub.released.set()
    shown.see("/help lists the commands, Ctrl-D leaves.", limit_s=LIMIT_S)
    assert IMPATIENT not in shown.text.partition("/help lists")[0]
    # What was typed meanwhile stands at the prompt, where it can be taken back.
    shown.see(IMPATIENT, limit_s=LIMIT_S)
    shown.type("\x15")


def chats(shown: Terminal) -> None:
    shown.type("/help\r")
    shown.see("Ctrl-C stops an answer", limit_s=LIMIT_S)
    fits(shown.text.partition("/help lists")[2].partition("/help\n")[2])
    fits(typed(shown, "/set", "reasoning_effort").partition("/set\n")[2])
    typed(shown, "/set temperature 0", "temperature = 0")
    assert "I am jan-tiny" in typed(shown, "Hello, who are you?", "jan-tiny")
    typed(shown, "/file note.txt", "Files that go with the next question: 1.")
    answer = typed(shown, QUESTION, f"{QUESTION}\n").partition(f"{QUESTION}\n")[2]
    assert answer.strip(" \n>")
    typed(shown, "/file", "Files that go with the next question: 0.")


def stops_an_answer(shown: Terminal) -> None:
    for name in ("min_tokens", "max_tokens"):
        typed(shown, f"/set {name} 15000", f"{name} = 15000")
    begin = len(shown.text)
    shown.type("Tell me a story.\r")
    wait_until(lambda: len(shown.text) > begin + 200, LIMIT_S)
    shown.type(IMPATIENT)
    assert not shown.echoes
    shown.type(CTRL_C)
    shown.see("Stopped.", limit_s=LIMIT_S)
    shown.see_prompt(">>>", limit_s=LIMIT_S)
    assert IMPATIENT not in shown.text[begin:]


def finds_its_way(home: Path) -> None:
    for words in (("list",), ("show", NAME)):
        table = printed(home, *words)
        fits(table)
        assert FULL_NAME in table.replace("\n", " ").split()
    assert f"{FULL_NAME} (chosen with `jan-serve use`)" in printed(home, "use", NAME)
    search = printed(home, "search", "coder")
    fits(search)
    assert "qwen2.5-coder-1.5b" in search
    listed, found = printed(home, "chats"), printed(home, "chats", "search", "note")
    assert re.findall(r"\b[0-9a-f]{8}\b", listed) == re.findall(r"\b[0-9a-f]{8}\b", found) != []
    fits(listed)
    fits(found)

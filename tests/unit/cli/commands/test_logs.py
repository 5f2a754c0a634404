"""`jan-serve logs`, and the end of a log file."""

from __future__ import annotations

import itertools
import json
import logging
import socket
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from jan_serve.cli.commands.logs import follow_lines, last_lines
from tests.support.servers.served_app import ServedApp
from tests.unit.cli.conftest import Run


@pytest.fixture(scope="module", autouse=True)
def lines(server: ServedApp) -> Generator[None]:
    """Three records."""
    for level, message in ((logging.INFO, "one"), (logging.WARNING, "two\x1b[31m"), (logging.ERROR, "three")):
        fields = {"levelno": level, "levelname": logging.getLevelName(level), "name": "jan_serve.x"}
        server.log.handle(logging.makeLogRecord({**fields, "msg": message, "model": "a b"}))
    yield


def test_lines(ask: Run) -> None:
    answer = ask("logs")
    assert (answer.status, answer.err) == (0, "")
    found = answer.out.splitlines()
    assert [line[24:] for line in found] == [
        'INFO    jan_serve.x: one model="a b"',
        'WARNING jan_serve.x: two\\x1b[31m model="a b"',
        'ERROR   jan_serve.x: three model="a b"',
    ]


def test_fewer_lines(ask: Run) -> None:
    assert len(ask("logs", "-n", "1").out.splitlines()) == 1
    assert ask("logs", "-n", "0").out == ""
    assert len(ask("logs", "--level", "warning").out.splitlines()) == 2


def test_json_lines(ask: Run) -> None:
    found = [json.loads(line) for line in ask("logs", "--json").out.splitlines()]
    assert [record["level"] for record in found] == ["info", "warning", "error"]
    assert found[1]["message"] == "two\x1b[31m"


@pytest.mark.parametrize("words", [("-n", "-1"), ("-n", "9999"), ("--level", "loud")])
def test_wrong_use(ask: Run, words: tuple[str, ...]) -> None:
    assert ask("logs", *words).status == 2


def test_without_a_server_the_log_file_is_shown(run: Run, own_settings: Path, tmp_path: Path) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        own_settings.write_text(f'data_dir = "data"\nport = {sock.getsockname()[1]}\n')
        assert run("logs").status == 3
        file = tmp_path / "data" / "logs" / "server.log"
        file.parent.mkdir(parents=True)
        file.write_text("first\nsecond\x1b[0m\nthird\n")
        answer = run("logs", "-n", "2")
        assert (answer.status, answer.out) == (0, "second\\x1b[0m\nthird\n")
        assert f"No server runs. This is the end of {file}." in answer.err
        assert run("logs", "--follow").status == 3
        assert run("logs", "--json").status == 3


def test_the_last_lines(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    assert last_lines(path, 5) == []
    path.with_name("server.log.1").write_text("1\n2\n3\n")
    path.write_text("4\n5\n")
    assert last_lines(path, 1) == ["5"]
    assert last_lines(path, 4) == ["2", "3", "4", "5"]
    assert last_lines(path, 50) == ["1", "2", "3", "4", "5"]
    assert last_lines(path, 0) == []


def following(path: Path, *steps: Callable[[], object], n_lines: int = 0) -> list[str]:
    """The lines seen when one step runs at each pause."""
    todo: Iterator[Callable[[], object]] = iter(steps)

    class Over(Exception):
        """All steps are done."""

    def wait() -> None:
        step = next(todo, None)
        if step is None:
            raise Over
        step()

    seen: list[str] = []
    found, lines = follow_lines(path, n_lines, wait)
    try:
        for line in itertools.islice(itertools.chain(found, lines), 100):
            seen.append(line)
    except Over:
        return seen
    raise AssertionError("too many lines")


def add(path: Path, text: str) -> Callable[[], object]:
    """Append a text."""

    def write() -> None:
        with path.open("a") as file:
            file.write(text)

    return write


def test_only_new_complete_lines(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("old\n")
    assert following(path, add(path, "on"), add(path, "e\ntwo\nthr")) == ["one", "two"]


def test_lines_written_between_the_two_parts_are_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("old\nha")
    found, coming = follow_lines(path, 5)
    add(path, "lf\nnew\n")()
    assert (found, next(coming), next(coming)) == (["old"], "half", "new")
    coming.close()


def test_lines_of_the_rotated_file_come_first(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.with_name("server.log.1").write_text("1\n2\n")
    path.write_text("3\n4")
    assert last_lines(path, 2) == ["3", "4"]
    assert following(path, add(path, "\n"), n_lines=2) == ["2", "3", "4"]


def test_a_file_that_is_created_later(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    assert following(path, lambda: None, add(path, "first\n")) == ["first"]


def test_renames_and_cuts(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("old\n")

    def rename() -> None:
        add(path, "last of the old\n")()
        path.rename(tmp_path / "server.log.1")
        add(path, "first of the new\n")()

    def cut() -> None:
        path.write_text("cut\n")

    assert following(path, add(path, "one\n"), rename, cut) == [
        "one",
        "last of the old",
        "first of the new",
        "cut",
    ]


def test_an_incomplete_line_of_a_renamed_file_does_not_begin_the_next_file(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("old\n")

    def rename() -> None:
        add(path, "incomplete")()
        path.rename(tmp_path / "server.log.1")
        add(path, "new\n")()

    assert following(path, rename) == ["new"]

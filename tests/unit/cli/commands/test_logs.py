"""logs: of the running server, or of the log file if none runs."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.served_app import ServedApp
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

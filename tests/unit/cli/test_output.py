"""Tables, and one cell per line if a table is too wide."""

from __future__ import annotations

import pytest

from jan_serve.cli.output import Output

COLUMNS = ("model", "status", "memory", "context", "device")
ROWS = [("jan-tiny", "loaded", "75 MB", "2048", ""), ("a-model-with-a-long-name", "failed", "", "", "CPU")]


@pytest.fixture
def at_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jan_serve.cli.output.on_terminal", lambda: True)


def printed(capsys: pytest.CaptureFixture[str], width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    Output().table(COLUMNS, ROWS)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.usefixtures("at_width")
def test_a_table_that_fits(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(capsys, 80, monkeypatch)
    assert lines[1].split() == list(COLUMNS)
    assert lines[3].split() == ["jan-tiny", "loaded", "75", "MB", "2048"]


@pytest.mark.usefixtures("at_width")
@pytest.mark.parametrize("width", [30, 40])
def test_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    lines = printed(capsys, width, monkeypatch)
    assert lines[:5] == ["model    jan-tiny", "status   loaded", "memory   75 MB", "context  2048", ""]
    assert all(len(line) <= width for line in lines)
    assert "device   CPU" in lines


@pytest.mark.usefixtures("at_width")
def test_names_are_not_cut(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(printed(capsys, 20, monkeypatch)).replace(" ", "")
    assert "a-model-with-a-long-name" in text


def test_without_a_terminal_a_row_is_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = printed(capsys, 20, monkeypatch)
    assert lines[4].split() == ["a-model-with-a-long-name", "failed", "CPU"]

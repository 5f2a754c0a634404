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
    assert "a-model-with-a-long-name" in printed(capsys, 20, monkeypatch)


@pytest.mark.usefixtures("at_width")
def test_optional_columns_give_way_in_their_order(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def columns_at(width: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        Output().table(COLUMNS, ROWS, optional=("device", "context", "memory"))
        return next(line for line in capsys.readouterr().out.splitlines() if line.strip()).split()

    assert columns_at(80) == ["model", "status", "memory", "context", "device"]
    assert columns_at(60) == ["model", "status", "memory", "context"]
    assert columns_at(50) == ["model", "status", "memory"]
    assert columns_at(40) == ["model", "status"]
    assert columns_at(35) == ["model", "jan-tiny"]


@pytest.mark.usefixtures("at_width")
@pytest.mark.parametrize("width", range(20, 120, 7))
def test_cells_are_whole_at_every_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    rows = [
        (f"org/a-name-of-some-{'l' * n}ength", "said in so many words", "x" * n, "模型")
        for n in range(1, 60, 9)
    ]
    monkeypatch.setenv("COLUMNS", str(width))
    Output().table(("name", "a note", "code", "wide"), rows)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    for name, *_ in rows:
        assert any(name in line for line in lines)
    for words in lines:
        assert len(words) <= width or max(map(len, words.split())) > width - 10, words


def test_without_a_terminal_a_row_is_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = printed(capsys, 20, monkeypatch)
    assert lines[4].split() == ["a-model-with-a-long-name", "failed", "CPU"]

"""The log file: bounded in size, written by one server, and never the reason that a server ends."""

from __future__ import annotations

import errno
import io
import logging
import os
from pathlib import Path

import pytest

from jan_serve.logs.log_file import LogFileHandler, LogFileUnavailable, open_log_file

MAX_BYTES = 4096


def write(handler: logging.Handler, text: str, times: int = 1) -> None:
    """Log lines past every filter."""
    for _ in range(times):
        handler.handle(logging.makeLogRecord({"msg": text, "levelno": logging.INFO}))


def sizes(folder: Path) -> dict[str, int]:
    """What is in the folder but the lock."""
    return {path.name: path.stat().st_size for path in folder.iterdir() if not path.name.endswith(".lock")}


@pytest.mark.parametrize("n_files", [2, 3])
def test_the_files_stay_within_their_limit(tmp_path: Path, n_files: int) -> None:
    with open_log_file(tmp_path / "logs" / "server.log", MAX_BYTES, n_files) as handler:
        for number in range(2000):
            write(handler, f"line {number} " + "x" * 50)
    found = sizes(tmp_path / "logs")
    assert sorted(found) == ["server.log", "server.log.1", "server.log.2"][:n_files]
    assert all(size <= MAX_BYTES for size in found.values())
    last = (tmp_path / "logs" / "server.log").read_text().splitlines()[-1]
    assert last.startswith("line 1999 ")


def test_a_server_adds_to_the_file_of_the_one_before(tmp_path: Path) -> None:
    for number in range(2):
        with open_log_file(tmp_path / "server.log", MAX_BYTES, 2) as handler:
            write(handler, f"start {number}")
    assert (tmp_path / "server.log").read_text() == "start 0\nstart 1\n"


def test_one_server_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    with (
        open_log_file(path, MAX_BYTES, 2),
        pytest.raises(LogFileUnavailable, match="another server writes to"),
        open_log_file(path, MAX_BYTES, 2),
    ):
        pass
    with open_log_file(path, MAX_BYTES, 2):
        pass


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(LogFileUnavailable, match="cannot write to"),
        open_log_file(tmp_path / "file" / "server.log", MAX_BYTES, 2),
    ):
        pass


def test_a_file_that_cannot_be_renamed_starts_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def in_use(*_: object) -> None:
        raise PermissionError(errno.EACCES, "in use")

    monkeypatch.setattr(os, "rename", in_use)
    with open_log_file(tmp_path / "server.log", MAX_BYTES, 3) as handler:
        write(handler, "x" * 100, times=500)
        write(handler, "last")
    assert list(sizes(tmp_path)) == ["server.log"]
    text = (tmp_path / "server.log").read_text()
    assert len(text) <= MAX_BYTES
    assert text.endswith("last\n")


def test_a_full_disk_is_reported_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class OnFullDisk(LogFileHandler):
        full = True

        def flush(self) -> None:
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            super().flush()

    handler = OnFullDisk(tmp_path / "server.log", MAX_BYTES, 2)
    write(handler, "text", times=3)
    handler.full = False
    assert capsys.readouterr().err.count("No space left on device") == 1
    handler.close()


class UnderFullDisk(io.FileIO):
    """A file that takes nothing."""

    def write(self, data: object, /) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


class Buffering(LogFileHandler):
    """Leaves lines in the buffer, as a disk that fills up does."""

    def _open(self) -> io.TextIOWrapper:
        return io.TextIOWrapper(io.BufferedWriter(UnderFullDisk(self.baseFilename, "a")), encoding="utf-8")

    def flush(self) -> None:
        pass


def test_closing_on_a_full_disk_loses_lines_and_no_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = Buffering(tmp_path / "server.log", MAX_BYTES, 2)
    write(handler, "text")
    stream = handler.stream
    handler.close()
    assert stream is not None and stream.closed
    captured = capsys.readouterr().err
    assert captured.count("No space left on device") == 1
    assert "Traceback" not in captured


def test_a_full_disk_while_the_files_are_renamed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    handler = Buffering(tmp_path / "server.log", MAX_BYTES, 2)
    write(handler, "text")
    handler.doRollover()
    write(handler, "text")
    handler.close()
    captured = capsys.readouterr().err
    assert captured.count("No space left on device") == 1
    assert "Traceback" not in captured


def test_other_errors_are_bugs_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_log_file(tmp_path / "server.log", MAX_BYTES, 2) as handler:
        handler.handle(logging.makeLogRecord({"msg": "%d", "args": ("no number",)}))
    assert "TypeError" in capsys.readouterr().err

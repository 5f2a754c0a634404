"""service run: a service has its standard streams, and they stay small."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO

import pytest

from jan_serve.cli.commands.servers import started
from jan_serve.cli.commands.servers.started import provide_streams


@contextlib.contextmanager
def streams(stream: TextIO | None) -> Generator[None]:
    """Standard output and error are this; what they become is closed and undone."""
    before = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = stream  # type: ignore[assignment]
    try:
        yield
    finally:
        made: Any = sys.stderr
        sys.stdout, sys.stderr = before
        made.close()


def test_a_process_without_streams_writes_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "service.err"
    with streams(None):
        provide_streams(path)
        sys.stdout.write("a\n")
        sys.stderr.write("\udcff\n")
    assert path.read_text() == "a\n?\n"


@pytest.mark.parametrize("longer", [0, 1])
def test_a_file_that_is_too_long_begins_again(tmp_path: Path, longer: int) -> None:
    path = tmp_path / "service.err"
    size = started._MAX_ERRORS_BYTES + longer  # pyright: ignore[reportPrivateUsage]
    path.write_bytes(b"x" * size)
    with streams(None):
        provide_streams(path)
        sys.stderr.write("new\n")
    assert path.stat().st_size == (4 if longer else size + 4)
    assert path.read_bytes().endswith(b"new\n")


def test_streams_that_are_there_stay(tmp_path: Path) -> None:
    with streams(io.StringIO()):
        ours = sys.stderr
        provide_streams(tmp_path / "service.err")
        assert sys.stderr is ours
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("to_file", "log_file", "discards"), [(True, "a.log", True), (True, None, False), (False, "a.log", False)]
)
def test_log_lines_are_not_written_twice(
    tmp_path: Path, to_file: bool, log_file: str | None, discards: bool
) -> None:
    loaded: Any = SimpleNamespace(settings=SimpleNamespace(log_file=log_file))
    with streams((tmp_path / "err").open("w") if to_file else io.StringIO()):
        stream = started._log_stream(loaded)  # pyright: ignore[reportPrivateUsage]
    assert (stream is not None) is discards
    if stream is not None:
        with stream:
            assert stream.name == os.devnull

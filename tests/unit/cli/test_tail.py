"""Following a log file while it is renamed, truncated and recreated."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

from jan_serve.cli.tail import follow_lines, last_lines


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

"""The only printer of the commands: data on standard output, talk on standard error. Decides nothing.

Names and texts from files are printed as plain text with control characters escaped, never as rich markup.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.progress import Progress, ProgressColumn
from rich.table import Column, Table
from rich.text import Text

from jan_serve.logs.log_lines import printable

_UNBOUNDED: Final = 100_000
_PAIR: Final = 2
_GAP: Final = 3
"""Between the columns of a table."""
_SHORT: Final = 8
"""Longer words, such as paths, may be broken in a table."""


def printable_lines(text: str) -> str:
    """`text` with its line breaks, every other control character escaped."""
    return "\n".join(printable(line) for line in text.splitlines())


def _narrowest(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """How wide a terminal has to be, in characters, for a table whose short words are whole."""
    widths = (
        max(min(cell_len(word), _SHORT) for cell in column for word in cell.split() or [""])
        for column in zip(columns, *rows, strict=True)
    )
    return sum(widths) + _GAP * len(columns)


def _records(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Name and value of each cell that is not empty on a line, and an empty line after each row."""
    table = Table.grid(Column(style="bold"), Column(overflow="fold"), padding=(0, 2, 0, 0))
    for row in rows:
        for name, cell in zip(columns, row, strict=True):
            if cell:
                table.add_row(name, Text(cell, overflow="fold"))
        table.add_row("", "")
    return table


def _printable_layout(text: str) -> str:
    """`text` with its line breaks and tabs, every other control character escaped."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in lines)


def on_terminal() -> bool:
    """Whether a person reads standard output as it comes."""
    return sys.stdout.isatty()


class Output:
    """Writes to the two standard streams, with colour where they are terminals."""

    def __init__(self) -> None:
        # Without a terminal nothing is wrapped: programs that read a table get one row a line.
        width = None if on_terminal() else _UNBOUNDED
        self._out = Console(file=sys.stdout, highlight=False, width=width)
        self._err = Console(file=sys.stderr, highlight=False, soft_wrap=True)

    def data(self, text: str) -> None:
        """One line of the result."""
        self._out.print(Text(printable(text)))

    def raw(self, text: str) -> None:
        """A text as it is, to be piped: nothing in it is escaped where it does not go to a terminal."""
        sys.stdout.write((printable_lines(text) if on_terminal() else text) + "\n")

    @property
    def is_watched(self) -> bool:
        """Whether a person sees standard error as it comes."""
        return self._err.is_terminal

    def piece(self, text: str) -> None:
        """A part of a text that comes little by little; it goes out at once, escaped as `raw` does."""
        sys.stdout.write(_printable_layout(text) if on_terminal() else text)
        sys.stdout.flush()

    def aside(self, text: str) -> None:
        """A part of a text that is not the result."""
        self._err.print(Text(_printable_layout(text), style="dim"), end="")

    def json(self, value: Any) -> None:
        """The result as JSON, for programs."""
        sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")

    def json_line(self, value: Any) -> None:
        """One of many results as JSON on a line of its own; it goes out at once."""
        sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")
        sys.stdout.flush()

    def styled(self, *parts: tuple[str, str]) -> None:
        """One line of the result, of texts with a style (or "") each."""
        self._out.print(Text.assemble(*((printable(text), style) for text, style in parts)), soft_wrap=True)

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str | None = None
    ) -> None:
        """The result as a table. No cell is cut off: where the words do not fit, a line has one cell."""
        cells = [[printable(cell) for cell in row] for row in rows]
        if len(columns) > _PAIR and _narrowest(columns, cells) > self._out.width:
            self._out.print(_records(columns, cells))
            return
        table = Table(*columns, box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
        for row in cells:
            table.add_row(*(Text(cell, overflow="fold") for cell in row))
        self._out.print(table)

    def progress(self, *columns: str | ProgressColumn) -> Progress | None:
        """A progress display among the notes, which vanishes when it ends. None where nobody would see it."""
        if not self._err.is_terminal:
            return None
        return Progress(*columns, console=self._err, transient=True)

    def note(self, text: str = "") -> None:
        """Something to know that is not the result."""
        self._err.print(Text(printable(text)))

    def pairs(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Notes of the form name and value, aligned."""
        for name, value in pairs:
            self._err.print(Text.assemble((f"  {name:<8}", "bold"), printable(value)))

    def headline(self, text: str) -> None:
        """The first line of a group of notes."""
        self._err.print(Text(printable(text), style="bold"))

    def warning(self, text: str) -> None:
        """Something that works, but hardly as meant."""
        self._err.print(Text.assemble(("warning: ", "yellow"), printable(text)))

    def error(self, message: str, next_step: str | None = None) -> None:
        """Why the command did not do what it should, line by line, and what helps."""
        for line in message.splitlines():
            self._err.print(Text.assemble(("error: ", "bold red"), printable(line)))
        if next_step:
            self._err.print(Text(printable(next_step)))

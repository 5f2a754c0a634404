"""Output of the commands: results on standard output, notes on standard error.

Names and texts are printed as plain text with control characters escaped, never as rich markup.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from jan_serve.logs.log_lines import printable

# rich is imported for terminals and tables: the log of a service has neither.
if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn
    from rich.table import Table

_UNBOUNDED: Final = 100_000
_PAIR: Final = 2
_GAP: Final = 3
"""Between the columns of a table."""
_SHORT: Final = 8
"""A table may break longer words, such as paths."""


def _printable_lines(text: str) -> str:
    """Keeps line breaks and escapes every other control character."""
    return "\n".join(printable(line) for line in text.splitlines())


def _min_width(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Width in characters at which a table breaks no short word."""
    from rich.cells import cell_len

    widths = (
        max(min(cell_len(word), _SHORT) for cell in column for word in cell.split() or [""])
        for column in zip(columns, *rows, strict=True)
    )
    return sum(widths) + _GAP * len(columns)


def _records(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """One line with name and value for each cell that is not empty; an empty line after each row."""
    from rich.table import Column, Table
    from rich.text import Text

    table = Table.grid(Column(style="bold"), Column(overflow="fold"), padding=(0, 2, 0, 0))
    for row in rows:
        for name, cell in zip(columns, row, strict=True):
            if cell:
                table.add_row(name, Text(cell, overflow="fold"))
        table.add_row("", "")
    return table


def _printable_layout(text: str) -> str:
    """Keeps line breaks and tabs and escapes every other control character."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in lines)


def on_terminal() -> bool:
    return sys.stdout.isatty()


def shortened(text: str, width: int) -> str:
    """The text on one line of at most this many characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def size_text(n_bytes: int) -> str:
    """Three significant digits and a decimal unit."""
    size = float(n_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}" if unit != "B" else f"{n_bytes} B"
        size /= 1000
    return f"{size:.3g} TB"


class Output:
    """Writes to the two standard streams, in colour if they are terminals."""

    @cached_property
    def _out(self) -> Console:
        from rich.console import Console

        # No wrapping without a terminal: programs that parse a table get one row per line.
        width = None if on_terminal() else _UNBOUNDED
        return Console(file=sys.stdout, highlight=False, width=width)

    @cached_property
    def _err(self) -> Console:
        from rich.console import Console

        return Console(file=sys.stderr, highlight=False, soft_wrap=True)

    def _note(self, *parts: tuple[str, str], end: str = "\n") -> None:
        """(text, style) parts on standard error."""
        if self.notes_on_terminal:
            from rich.text import Text

            self._err.print(Text.assemble(*parts), end=end)
        else:
            sys.stderr.write("".join(text for text, _ in parts) + end)
            sys.stderr.flush()

    def data(self, text: str) -> None:
        """One line of the result."""
        from rich.text import Text

        self._out.print(Text(printable(text)))

    def raw(self, text: str) -> None:
        """Text for a pipe: escaped only on a terminal."""
        sys.stdout.write((_printable_lines(text) if on_terminal() else text) + "\n")

    @property
    def notes_on_terminal(self) -> bool:
        return sys.stderr.isatty()

    def piece(self, text: str) -> None:
        """Part of a streamed result, flushed at once and escaped as in `raw`."""
        sys.stdout.write(_printable_layout(text) if on_terminal() else text)
        sys.stdout.flush()

    def aside(self, text: str) -> None:
        """Part of a streamed text on standard error."""
        self._note((_printable_layout(text), "dim"), end="")

    def json(self, value: Any) -> None:
        sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")

    def json_line(self, value: Any) -> None:
        """One result per line as JSON, flushed at once."""
        sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")
        sys.stdout.flush()

    def styled(self, *parts: tuple[str, str]) -> None:
        """One line of the result from (text, style) parts."""
        from rich.text import Text

        self._out.print(Text.assemble(*((printable(text), style) for text, style in parts)), soft_wrap=True)

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str | None = None
    ) -> None:
        """The result as a table. Never truncates a cell: if the table is too wide, it prints one cell per line."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        cells = [[printable(cell) for cell in row] for row in rows]
        if len(columns) > _PAIR and _min_width(columns, cells) > self._out.width:
            self._out.print(_records(columns, cells))
            return
        table = Table(*columns, box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
        for row in cells:
            table.add_row(*(Text(cell, overflow="fold") for cell in row))
        self._out.print(table)

    def progress(self, *columns: str | ProgressColumn) -> Progress | None:
        """A progress display on standard error that vanishes when it ends. None if that is no terminal."""
        if not self.notes_on_terminal:
            return None
        from rich.progress import Progress

        return Progress(*columns, console=self._err, transient=True)

    def note(self, text: str = "") -> None:
        self._note((printable(text), ""))

    def pairs(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Aligned notes of name and value."""
        for name, value in pairs:
            self._note((f"  {name:<8}", "bold"), (printable(value), ""))

    def headline(self, text: str) -> None:
        """A note in bold above other notes."""
        self._note((printable(text), "bold"))

    def warning(self, text: str) -> None:
        self._note(("warning: ", "yellow"), (printable(text), ""))

    def error(self, message: str, next_step: str | None = None) -> None:
        for line in message.splitlines():
            self._note(("error: ", "bold red"), (printable(line), ""))
        if next_step:
            self.note(next_step)

"""Output of the commands: results on standard output, notes on standard error.
Names and texts are printed as plain text with control characters escaped, never as rich markup."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence, Set
from typing import TYPE_CHECKING, Any, Final

from jan_serve.logs.log_lines import printable

# rich is imported for terminals and tables: the log of a service has neither.
if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn
    from rich.table import Table

_UNBOUNDED: Final = 100_000
_GAP: Final = 3
"""Between the columns of a table."""
_PAD: Final = 2
"""Between a name and its value."""
_SHORT: Final = 16
"""A table may break longer words, such as paths, in columns that hold no names."""


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]], whole: Set[str], most: int) -> list[int]:
    """Width of each column within `most` characters in all; empty if they do not fit.
    Cells of the columns in `whole` stay on one line. Others are wrapped at spaces; only long words, such as paths, are
    broken."""
    from rich.cells import cell_len

    widths: list[int] = []
    least: list[int] = []
    for name, *cells in zip(columns, *rows, strict=True):
        width = max(cell_len(cell) for cell in (name, *cells))
        words = [cell_len(word) for cell in cells for word in cell.split()]
        shortest = max([min(max(words, default=0), _SHORT), *(cell_len(word) for word in name.split())])
        widths.append(width)
        least.append(width if name in whole else shortest)
    most -= _GAP * len(columns)
    if sum(least) > most:
        return []
    while sum(widths) > most:
        # The widest one gives way, as far as the next one is narrower.
        index = max(
            (at for at in range(len(widths)) if widths[at] > least[at]), key=lambda at: widths[at] - least[at]
        )
        widths[index] -= 1
    return widths


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of at most this width, or of one longer word: a name or a path can be copied."""
    from rich.cells import cell_len

    lines = [""]
    for word in text.split(" "):
        if lines[-1] and cell_len(lines[-1]) + 1 + cell_len(word) > width:
            lines.append(word)
        else:
            lines[-1] += f" {word}" if lines[-1] else word
    return lines


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

    def __init__(self) -> None:
        self._err_console: Console | None = None

    @property
    def _out(self) -> Console:
        from rich.console import Console

        # No wrapping without a terminal: programs that parse a table get one row per line.
        return Console(highlight=False, width=None if on_terminal() else _UNBOUNDED)

    @property
    def _err(self) -> Console:
        """The same as long as standard error is: only the console of a progress bar can write above the bar."""
        from rich.console import Console

        # While rich shows a bar, sys.stderr is its stand-in.
        stream = getattr(sys.stderr, "rich_proxied_file", sys.stderr)
        if self._err_console is None or self._err_console.file is not stream:
            self._err_console = Console(file=stream, highlight=False, soft_wrap=True)
        return self._err_console

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

        # A line that the terminal wraps can be copied; rich would break it.
        self._out.print(Text(printable(text)), soft_wrap=True)

    def raw(self, text: str) -> None:
        """Text for a pipe: escaped only on a terminal."""
        sys.stdout.write(("\n".join(map(printable, text.splitlines())) if on_terminal() else text) + "\n")

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
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[str]],
        *,
        title: str | None = None,
        whole: Sequence[str] = (),
        optional: Sequence[str] = (),
    ) -> None:
        """The result as a table. Never truncates a cell, and keeps those of the first column on one line each.

        On a terminal that is too narrow, it leaves out `optional` columns, in this order, or else prints one cell per
        line. whole: further columns whose cells stay on one line.
        """
        cells = [[printable(cell) for cell in row] for row in rows]
        table = self._table(columns, cells, title, whole, optional)
        if table is None:
            self._records(columns, cells, {columns[0], *whole})
        else:
            self._out.print(table)

    def refreshed(
        self, columns: Sequence[str], frames: Iterable[Iterable[Sequence[str]]], optional: Sequence[str]
    ) -> None:
        """A table that each of the frames replaces, as long as there are any. Needs a terminal; see `table`."""
        from rich.live import Live

        with Live(console=self._out, auto_refresh=False) as live:
            for rows in frames:
                room = max(1, self._out.height - 3)
                cells = [[printable(cell) for cell in row] for row in rows][:room]
                live.update(self._table(columns, cells, None, (), optional) or "", refresh=True)

    def _table(
        self,
        columns: Sequence[str],
        cells: Sequence[Sequence[str]],
        title: str | None,
        whole: Sequence[str],
        optional: Sequence[str],
    ) -> Table | None:
        """None if the terminal is too narrow."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        kept, widths = list(range(len(columns))), list[int]()
        for name in ("", *optional):
            kept = [at for at in kept if columns[at] != name or not name]
            widths = _widths(
                [columns[at] for at in kept],
                [[row[at] for at in kept] for row in cells],
                {columns[0], *whole},
                self._out.width,
            )
            if widths:
                break
        else:
            return None
        table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
        for at, width in zip(kept, widths, strict=True):
            table.add_column(columns[at], width=width)
        for row in cells:
            table.add_row(*(Text(row[at], overflow="fold") for at in kept))
        return table

    def _records(self, columns: Sequence[str], rows: Sequence[Sequence[str]], whole: Set[str]) -> None:
        """One line with name and value for each cell that is not empty; an empty line after each row.

        Of two columns, the first one names the value.
        """
        from rich.cells import cell_len

        if len(columns) == 2:
            self._named_lines([(name, value) for name, value in (columns, *rows)], whole=set())
            return
        left = max(cell_len(name) for name in columns) + _PAD
        for row in rows:
            self._named_lines([pair for pair in zip(columns, row, strict=True) if pair[1]], whole, left)
            self._out.print()

    def _named_lines(self, pairs: Sequence[tuple[str, str]], whole: Set[str], left: int = 0) -> None:
        """left: width of the names. A value of `whole` that does not fit beside its name has a line of its own."""
        from rich.cells import cell_len
        from rich.text import Text

        left = left or max((cell_len(name) for name, _ in pairs), default=0) + _PAD
        for name, value in pairs:
            lines = [value] if name in whole else _wrapped(value, self._out.width - left)
            if name in whole and left + cell_len(value) > self._out.width:
                self._out.print(Text(name, "bold"))
                self._out.print(Text(value), soft_wrap=True)
                continue
            for label, line in zip((name, *[""] * len(lines)), lines, strict=False):
                text = Text.assemble((label, "bold"), " " * (left - cell_len(label)), line)
                self._out.print(text, soft_wrap=True)

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


output: Final = Output()
"""That of this process."""

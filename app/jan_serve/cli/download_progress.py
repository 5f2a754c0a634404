"""Progress of a download: a bar on a terminal, else a line per 10 %, on standard error."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from jan_serve.cli.output import Output, size_text


class DownloadProgress:
    """Progress bar of a pull. n_total: bytes."""

    def __init__(self, output: Output, name: str, n_total: int) -> None:
        self._output = output
        self._name = name
        self._n_total = n_total
        self._bar = output.progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        self._task = self._bar.add_task(name, total=n_total) if self._bar is not None else None
        self._tenths = -1

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def received(self, n_bytes: int) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=n_bytes)
            return
        tenths = n_bytes * 10 // self._n_total if self._n_total else 10
        if tenths != self._tenths:
            self._tenths = tenths
            self._output.note(f"{self._name}: {tenths * 10} % of {size_text(self._n_total)}")

    def note(self, text: str) -> None:
        self._output.note(text)

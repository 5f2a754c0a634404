"""Has the server load a model by its name, and shows how far it is."""

from __future__ import annotations

from typing import Any

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from jan_serve.cli.client.server_connection import ServerConnection
from jan_serve.cli.output import Output


def load_model(connection: ServerConnection, name: str, output: Output, **wishes: object) -> str:
    """Have the model in memory; the value is its full name. Blocks until then, with a bar on a terminal.

    wishes: further fields of the request. Ctrl-C stops the load. Raises CommandError, with names that look like this
    one where there is none: the routes of other APIs would answer for it with the default model.
    """
    # The bar waits for the first step: a model that is in memory already shows none.
    bar: _Bar | None = None
    full_name = name
    try:
        for event in connection.events("/models/load", {"model": name, "stream": True, **wishes}):
            full_name = str(event.get("model", name))
            data: dict[str, Any] = event.get("data") or {}
            if data.get("status") == "loading":
                bar = bar or _Bar(output, full_name)
                progress: dict[str, Any] = data.get("progress") or {}
                bar.at(progress.get("value"))
    finally:
        if bar is not None:
            bar.stop()
    return full_name


class _Bar:
    """How far one load is."""

    def __init__(self, output: Output, name: str) -> None:
        self._progress: Progress | None = output.progress(
            TextColumn("Loading {task.description}", markup=False),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TimeElapsedColumn(),
        )
        if self._progress is not None:
            self._task = self._progress.add_task(name, total=None)
            self._progress.start()

    def at(self, fraction: float | None) -> None:
        """fraction: 0 to 1; None where it is not known."""
        if self._progress is not None and fraction is not None:
            self._progress.update(self._task, total=1.0, completed=fraction)

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()

"""Offers the download of a catalogue model that the server does not have, and shows the progress of downloads.

Progress is a bar on a terminal, else a line per 10 %, on standard error.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any, cast

import typer
from rich.progress import DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

from jan_serve.cli.client.loading import ProgressBar
from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.errors import INTERRUPTED, CommandError
from jan_serve.cli.input import question_keys
from jan_serve.cli.output import output, size_text
from jan_serve.resources import catalogue_file
from jan_serve.store.hub.references import Catalogue


class DownloadProgress(ProgressBar):
    """Progress of a pull. n_total: bytes."""

    def __init__(self, name: str, n_total: int) -> None:
        columns = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        super().__init__(name, "{task.description}", *columns, total=n_total)
        self._name = name
        self._n_total = n_total
        self._tenths = -1

    def received(self, n_bytes: int) -> None:
        if output.notes_on_terminal:
            self.update(n_bytes, self._n_total)
            return
        tenths = n_bytes * 10 // self._n_total if self._n_total else 10
        if tenths != self._tenths:
            self._tenths = tenths
            output.note(f"{self._name}: {tenths * 10} % of {size_text(self._n_total)}")

    def note(self, text: str) -> None:
        output.note(text)


def pulled_on_request(client: ServerClient, name: str) -> bool:
    """Ask whether the server shall download the model, and wait for that. False without a terminal, or if declined."""
    catalogue = Catalogue.read(catalogue_file())
    if not catalogue.has(name) or not (sys.stdin.isatty() and output.notes_on_terminal):
        return False
    reference, entry = catalogue.reference(name)
    size = f" ({entry.size_gb:g} GB)" if reference.tag is None else ""
    with question_keys():
        if not typer.confirm(f"{name} is not here{size}. Download it?", default=True, err=True):
            return False
    try:
        _pull(client, name)
    except KeyboardInterrupt:
        raise CommandError("Stopped.", "Run the same command to resume the download.", INTERRUPTED) from None
    return True


def _pull(client: ServerClient, name: str) -> None:
    with contextlib.ExitStack() as shown:
        progress: DownloadProgress | None = None
        for event in client.events("/models/pull", {"model": name, "stream": True}):
            kind, data = event.get("event"), cast(dict[str, Any], event.get("data") or {})
            if kind == "download_started":
                progress = DownloadProgress(name, int(data["total"]))
                shown.callback(progress.close)
            elif kind == "download_progress" and progress is not None:
                progress.received(sum(int(file["done"]) for file in data.values()))
            elif kind == "download_message":
                output.note(str(data["message"]))

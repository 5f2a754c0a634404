"""Offers the download of a catalogue model that the server does not have."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, cast

import typer

from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.download_progress import DownloadProgress
from jan_serve.cli.errors import INTERRUPTED, CommandError
from jan_serve.cli.output import Output
from jan_serve.resources import catalogue_file
from jan_serve.store.hub.catalogue import Catalogue


def pulled_on_request(client: ServerClient, name: str, output: Output) -> bool:
    """Ask whether the server shall download the model, and wait for that. False without a terminal, or if declined."""
    catalogue = Catalogue.read(catalogue_file())
    if not catalogue.has(name) or not (sys.stdin.isatty() and output.notes_on_terminal):
        return False
    reference, entry = catalogue.reference(name)
    size = f" ({entry.size_gb:g} GB)" if reference.tag is None else ""
    if not typer.confirm(f"{name} is not here{size}. Download it?", default=True, err=True):
        return False
    try:
        _pull(client, name, output)
    except KeyboardInterrupt:
        raise CommandError("Stopped.", "Run the same command to resume the download.", INTERRUPTED) from None
    return True


def _pull(client: ServerClient, name: str, output: Output) -> None:
    with contextlib.ExitStack() as shown:
        progress: DownloadProgress | None = None
        for event in client.events("/models/pull", {"model": name, "stream": True}):
            kind, data = event.get("event"), cast(dict[str, Any], event.get("data") or {})
            if kind == "download_started":
                progress = shown.enter_context(DownloadProgress(output, name, int(data["total"])))
            elif kind == "download_progress" and progress is not None:
                progress.received(sum(int(file["done"]) for file in data.values()))
            elif kind == "download_message":
                output.note(str(data["message"]))

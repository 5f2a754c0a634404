"""Loads and downloads models on the server, with their progress on standard error."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import Any, Final, cast
from urllib.parse import quote

import typer
from rich.progress import (
    BarColumn,
    DownloadColumn,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from jan_serve.cli.client.server_client import OtherProgram, ServerClient, UnknownModel
from jan_serve.cli.errors import INTERRUPTED, CommandError
from jan_serve.cli.input import question_keys, silent_keys
from jan_serve.cli.output import output, size_text
from jan_serve.resources import catalogue_file
from jan_serve.store.hub.references import Catalogue


class ProgressBar:
    """Shows progress on standard error until it is closed, then vanishes. Does nothing if that is no terminal."""

    def __init__(self, name: str, text: str, *columns: ProgressColumn, total: float | None = None) -> None:
        self._progress = output.progress(TextColumn(text, markup=False), BarColumn(bar_width=None), *columns)
        self._shown = contextlib.ExitStack()
        if self._progress is not None:
            self._task = self._progress.add_task(name, total=total)
            self._shown.enter_context(silent_keys())
            self._shown.enter_context(self._progress)

    def update(self, completed: float, total: float | None, description: str | None = None) -> None:
        if self._progress is not None:
            self._progress.update(self._task, completed=completed, total=total, description=description)

    def close(self) -> None:
        self._shown.close()


def load_model(client: ServerClient, name: str, **fields: object) -> str:
    """Load a model and return its full name. Blocks until it is loaded, with a progress bar on a terminal.
    fields: further fields of the request. Ctrl-C stops the load. Raises CommandError for an unknown name, with similar
    names; the routes of other APIs would use the default model instead."""
    # Created at the first progress event: a model that is already loaded sends none.
    bar: ProgressBar | None = None
    full_name = name
    try:
        for event in client.events("/models/load", {"model": name, "stream": True, **fields}):
            full_name = str(event.get("model", name))
            data: dict[str, Any] = event.get("data") or {}
            if data.get("status") == "loading":
                if bar is None:
                    columns = (TaskProgressColumn(), TimeElapsedColumn())
                    bar = ProgressBar(full_name, "Loading {task.description}", *columns)
                progress: dict[str, Any] = data.get("progress") or {}
                if (fraction := progress.get("value")) is not None:
                    bar.update(fraction, 1.0)
    finally:
        if bar is not None:
            bar.close()
    return full_name


def ready_model(client: ServerClient, name: str) -> str:
    """Load the model as `load_model` does, or check its name at a proxy, where the request itself loads it."""
    try:
        return load_model(client, name)
    except OtherProgram:
        return str(client.get(f"/v1/models/{quote(name)}")["id"])


NOTICE: Final = "This file has no chat template: it is a base model that continues text, not one that chats."


def note_base_model(client: ServerClient, names: Sequence[str]) -> None:
    """names: of one loaded model, as typed and in full. A proxy does not say what its models are."""
    try:
        has_template = bool(client.get("/props", {"model": names[0]}, patient=True)["chat_template"])
    except OtherProgram:
        return
    if not has_template and not any(_is_told_to_chat(client, name) for name in dict.fromkeys(names)):
        output.note(NOTICE)


def _is_told_to_chat(client: ServerClient, name: str) -> bool:
    """Whether the configuration, or the variant of that name, has a template for it."""
    try:
        card = client.get(f"/v1/models/{quote(name)}")
    except UnknownModel:  # the name was shortened
        return False
    return bool(cast(dict[str, Any], card.get("meta") or {}).get("has_chat_template"))


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

"""Loads a model on the server, shows the progress, and says of a base model that it does not chat."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Final, cast
from urllib.parse import quote

from rich.progress import BarColumn, ProgressColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

from jan_serve.cli.client.server_client import OtherProgram, ServerClient, UnknownModel
from jan_serve.cli.input import silent_keys
from jan_serve.cli.output import output


class ProgressBar:
    """Shows progress on standard error until it is closed, then vanishes. Does nothing if that is no terminal."""

    def __init__(self, name: str, text: str, *columns: ProgressColumn, total: float | None = None) -> None:
        self._progress = output.progress(TextColumn(text, markup=False), BarColumn(bar_width=None), *columns)
        self._shown = contextlib.ExitStack()
        if self._progress is not None:
            self._task = self._progress.add_task(name, total=total)
            self._shown.enter_context(silent_keys())
            self._shown.enter_context(self._progress)

    def update(self, completed: float, total: float) -> None:
        if self._progress is not None:
            self._progress.update(self._task, completed=completed, total=total)

    def close(self) -> None:
        self._shown.close()


def load_model(client: ServerClient, name: str, **fields: object) -> str:
    """Load a model and return its full name. Blocks until it is loaded, with a progress bar on a terminal.

    fields: further fields of the request. Ctrl-C stops the load. Raises CommandError for an unknown name, with similar
    names; the routes of other APIs would use the default model instead.
    """
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

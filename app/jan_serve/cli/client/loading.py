"""Loads a model on the server, shows the progress, and says of a base model that it does not chat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast
from urllib.parse import quote

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from jan_serve.cli.client.server_client import OtherProgram, ServerClient, UnknownModel
from jan_serve.cli.output import Output


def load_model(client: ServerClient, name: str, output: Output, **fields: object) -> str:
    """Load a model and return its full name. Blocks until it is loaded, with a progress bar on a terminal.

    fields: further fields of the request. Ctrl-C stops the load. Raises CommandError for an unknown name, with similar
    names; the routes of other APIs would use the default model instead.
    """
    # Created at the first progress event: a model that is already loaded sends none.
    bar: _Bar | None = None
    full_name = name
    try:
        for event in client.events("/models/load", {"model": name, "stream": True, **fields}):
            full_name = str(event.get("model", name))
            data: dict[str, Any] = event.get("data") or {}
            if data.get("status") == "loading":
                bar = bar or _Bar(output, full_name)
                progress: dict[str, Any] = data.get("progress") or {}
                bar.update(progress.get("value"))
    finally:
        if bar is not None:
            bar.stop()
    return full_name


def ready_model(client: ServerClient, name: str, output: Output) -> str:
    """Load the model as `load_model` does, or check its name at a proxy, where the request itself loads it."""
    try:
        return load_model(client, name, output)
    except OtherProgram:
        return str(client.get(f"/v1/models/{quote(name)}")["id"])


class _Bar:
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

    def update(self, fraction: float | None) -> None:
        """fraction: 0 to 1; None if unknown."""
        if self._progress is not None and fraction is not None:
            self._progress.update(self._task, total=1.0, completed=fraction)

    def stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()


NOTICE: Final = "This file has no chat template: it is a base model that continues text, not one that chats."


def note_base_model(client: ServerClient, names: Sequence[str], output: Output) -> None:
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

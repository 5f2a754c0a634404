"""`jan-serve ps`: what the running server has in memory, and what it does."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from jan_serve.cli.commands.ls import size_text
from jan_serve.cli.options import ConfigOption, JsonOption, UrlOption, connection_to
from jan_serve.cli.output import Output


def ps(
    everything: Annotated[bool, typer.Option("--all", "-a", help="Models that are not loaded too.")] = False,
    url: UrlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the models that the running server has in memory. The exit status is 3 where no server runs."""
    output = Output()
    with connection_to(config, url) as connection:
        health = connection.get("/health")
        models: list[dict[str, Any]] = connection.get("/models")["data"]
        where = connection.url
    shown = [model for model in models if everything or model["status"]["value"] != "unloaded"]
    if as_json:
        server = {name: health[name] for name in ("version", "pid", "uptime_s", "state", "open_requests")}
        output.json({"server": {"url": where, **server}, "models": shown})
        return
    if shown:
        output.table(
            ("model", "status", "memory", "context", "device", "unloads", "requests"),
            [
                (
                    model["id"],
                    _status(model["status"]),
                    _memory(model["memory"]),
                    str(model["context_length"] or "") if model["status"]["value"] == "loaded" else "",
                    model["device"] or "",
                    _end(model),
                    _requests(model),
                )
                for model in shown
            ],
        )
    else:
        output.note(
            "No model is loaded: the first request for one loads it, and so does `jan-serve load NAME`."
        )
    output.note(f"{where}: {health['state']}, pid {health['pid']}, up {_duration(health['uptime_s'])}")


def _status(status: dict[str, Any]) -> str:
    if status["value"] == "loading":
        fraction = status.get("progress", {}).get("value")
        return "loading" if fraction is None else f"loading, {fraction:.0%}"
    reason = status.get("reason")
    return f"{status['value']}: {reason}" if reason else status["value"]


def _memory(memory: dict[str, int | None] | None) -> str:
    """What the worker holds; before the first look at it, what it is expected to take."""
    return size_text((memory["resident"] or memory["total"]) or 0) if memory is not None else ""


def _end(model: dict[str, Any]) -> str:
    """When the model leaves the memory by itself."""
    if model["status"]["value"] != "loaded":
        return ""
    if model["pinned"]:
        return "never: pinned"
    return "never" if model["ttl_s"] is None else f"in {_duration(model['ttl_s'])}"


def _requests(model: dict[str, Any]) -> str:
    waiting = f", {model['queued']} waiting" if model["queued"] else ""
    return f"{model['running']} running{waiting}" if model["running"] or waiting else ""


def _duration(seconds: float) -> str:
    """Two units at most: `3 h 20 min`."""
    total = int(seconds)
    for unit_s, unit, part_s, part in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if total >= unit_s:
            return f"{total // unit_s} {unit} {total % unit_s // part_s} {part}"
    return f"{total} s"

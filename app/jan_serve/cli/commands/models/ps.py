"""`jan-serve ps`: the loaded models of the running server."""

from __future__ import annotations

from typing import Annotated, Any

from jan_serve.cli.arguments import ConfigOption, JsonOption, UrlOption, option
from jan_serve.cli.options import running_server
from jan_serve.cli.output import output, size_text


def ps(
    everything: Annotated[bool, option("--all -a", "Include models that are not loaded.")] = False,
    url: UrlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the loaded models of the running server. The exit status is 3 if no server runs."""
    with running_server(config, url) as client:
        health = client.get("/health")
        models: list[dict[str, Any]] = client.get("/models")["data"]
        url_in_use = client.url
    shown = [model for model in models if everything or model["status"]["value"] != "unloaded"]
    if as_json:
        server = {name: health[name] for name in ("version", "pid", "uptime_s", "state", "open_requests")}
        output.json({"server": {"url": url_in_use, **server}, "models": shown})
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
            optional=("device", "context", "unloads", "requests"),
        )
        for model in shown:
            note_placement(model)
    else:
        output.note(
            "No model is loaded. The first request for a model loads it, and so does `jan-serve load NAME`."
        )
    output.note(f"{url_in_use}: {health['state']}, pid {health['pid']}, up {_duration(health['uptime_s'])}")


def note_placement(model: dict[str, Any]) -> None:
    """Print where models are that have several devices or not those they should have: the table names one."""
    placement = model.get("placement")
    if placement is None or (len(placement["parts"]) < 2 and not placement["advice"]):
        return
    output.note(f"{model['id']}:")
    for text in (*(part["text"] for part in placement["parts"]), *placement["advice"]):
        output.note(f"  {text}")


def _status(status: dict[str, Any]) -> str:
    if status["value"] == "loading":
        fraction = status.get("progress", {}).get("value")
        return "loading" if fraction is None else f"loading, {fraction:.0%}"
    reason = status.get("reason")
    return f"{status['value']}: {reason}" if reason else status["value"]


def _memory(memory: dict[str, int | None] | None) -> str:
    """Resident memory of the worker; the estimate until it is measured."""
    return size_text((memory["resident"] or memory["total"]) or 0) if memory is not None else ""


def _end(model: dict[str, Any]) -> str:
    """When the model is unloaded for lack of requests. A proxy does not know it."""
    if model["status"]["value"] != "loaded" or "pinned" not in model:
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

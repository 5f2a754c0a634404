"""`jan-serve load`, `ps` and `stop`: what the running server has in memory."""

from __future__ import annotations

from typing import Annotated, Any

from jan_serve.cli.arguments import (
    ConfigOption,
    JsonOption,
    KeepAliveOption,
    UrlOption,
    model_argument,
    option,
)
from jan_serve.cli.client.loading import load_model
from jan_serve.cli.errors import WrongUse
from jan_serve.cli.options import running_server
from jan_serve.cli.output import output, size_text


def load(
    models: Annotated[list[str], model_argument("Names of models.")],
    wait: Annotated[
        bool, option("--wait/--no-wait", "Return once the models are loaded, or at once.")
    ] = True,
    keep_alive: KeepAliveOption = None,
    url: UrlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Load models on the running server. Ctrl-C stops the current load."""
    names: list[str] = []
    fields = {"keep_alive": keep_alive} if keep_alive is not None else {}
    with running_server(config, url) as client:
        for model in models:
            if wait:
                names.append(load_model(client, model, **fields))
            else:
                names.append(client.post("/models/load", {"model": model, "wait": False, **fields})["model"])
    if as_json:
        output.json({"models": names, "loaded": wait})
        return
    for name in names:
        output.note(
            f"{name} is loaded." if wait else f"{name} is loading: `jan-serve ps` shows the progress."
        )


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
        columns = ("model", "status", "memory", "context", "device", "unloads", "requests")
        output.table(columns, map(_row, shown), optional=("device", "context", "unloads", "requests"))
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


def _row(model: dict[str, Any]) -> tuple[str, ...]:
    memory: dict[str, int | None] | None = model["memory"]
    context = model["context_length"] if model["status"]["value"] == "loaded" else None
    waiting = f", {model['queued']} waiting" if model["queued"] else ""
    return (
        model["id"],
        _status(model["status"]),
        # Of the worker; the estimate until it is measured.
        size_text((memory["resident"] or memory["total"]) or 0) if memory is not None else "",
        str(context or ""),
        model["device"] or "",
        _end(model),
        f"{model['running']} running{waiting}" if model["running"] or waiting else "",
    )


def _status(status: dict[str, Any]) -> str:
    if status["value"] == "loading":
        fraction = status.get("progress", {}).get("value")
        return "loading" if fraction is None else f"loading, {fraction:.0%}"
    reason = status.get("reason")
    return f"{status['value']}: {reason}" if reason else status["value"]


def _end(model: dict[str, Any]) -> str:
    """When the model is unloaded for lack of requests. A proxy does not know it."""
    if model["status"]["value"] != "loaded" or "pinned" not in model:
        return ""
    if model["pinned"]:
        return "never: pinned"
    return "never" if model["ttl_s"] is None else f"in {_duration(model['ttl_s'])}"


def _duration(seconds: float) -> str:
    """Two units at most: `3 h 20 min`."""
    total = int(seconds)
    for unit_s, unit, part_s, part in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if total >= unit_s:
            return f"{total // unit_s} {unit} {total % unit_s // part_s} {part}"
    return f"{total} s"


def stop(
    models: Annotated[list[str] | None, model_argument("Names of models.")] = None,
    everything: Annotated[bool, option("--all", "Unload every model.")] = False,
    force: Annotated[bool, option("--force", "Abort running requests instead of waiting for them.")] = False,
    url: UrlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Unload models; the server keeps running. The next request for a model loads it again."""
    if bool(models) == everything:
        raise WrongUse("Pass the models to unload, or --all.", "`jan-serve ps` lists the loaded models.")
    with running_server(config, url) as client:
        listed: list[dict[str, Any]] = client.get("/models")["data"]
        loaded = {model["id"] for model in listed if model["status"]["value"] in ("loaded", "loading")}
        names = sorted(loaded) if everything else models or []
        unloaded = [client.post("/models/unload", {"model": name, "force": force})["model"] for name in names]
    if as_json:
        output.json({"unloaded": [name for name in unloaded if name in loaded]})
        return
    for name in unloaded:
        output.note(f"{name} is unloaded." if name in loaded else f"{name} was not loaded.")
    if not unloaded:
        output.note("No model was loaded.")

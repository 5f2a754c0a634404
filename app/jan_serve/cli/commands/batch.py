"""`jan-serve batch`: sends a file of requests as a batch and writes the answers beside it; lists, shows, cancels."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.progress import MofNCompleteColumn, TimeRemainingColumn

from jan_serve.cli.arguments import ConfigOption, JsonOption, UrlOption, argument, option
from jan_serve.cli.client.loading import ProgressBar
from jan_serve.cli.client.own_server import any_server
from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.errors import WrongUse
from jan_serve.cli.options import load_settings
from jan_serve.cli.output import output

_LOOK_S: Final = 0.5
_ENDED: Final = frozenset({"completed", "failed", "expired", "cancelled"})
_SHOWN_FAULTS: Final = 10

Batch = dict[str, Any]


def batch(
    what: Annotated[
        str, argument("FILE|ls|show|cancel", "A file of JSON lines in OpenAI's form, or a word.")
    ],
    batch_id: Annotated[str | None, argument("ID", "The batch to show or to cancel.")] = None,
    wait: Annotated[
        bool, option("--wait/--no-wait", "Wait for the answers, and write them beside FILE.")
    ] = True,
    window: Annotated[str, option("--window TIME", "Time after which the rest expires: 24h, 7d.")] = "24h",
    url: UrlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Answer a file of requests while nobody else needs the model. Starts a server if none runs."""
    if (what in ("show", "cancel")) != (batch_id is not None):
        raise WrongUse("`show` and `cancel` take the ID of a batch, and a FILE takes none.")
    loaded = load_settings(config_file=config)
    with any_server(loaded, url) as client:
        match what:
            case "ls":
                _list(client, as_json=as_json)
            case "show":
                _show(client.get(f"/v1/batches/{batch_id}"), as_json=as_json)
            case "cancel":
                _show(client.post(f"/v1/batches/{batch_id}/cancel", {}), as_json=as_json)
            case _:
                _send(client, Path(what), window=window, wait=wait, as_json=as_json)


def _send(client: ServerClient, path: Path, *, window: str, wait: bool, as_json: bool) -> None:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise WrongUse(f"{path}: {error.strerror}") from None
    file = client.upload("/v1/files", path.name, content, {"purpose": "batch"})
    body = {"input_file_id": file["id"], "endpoint": _endpoint(path, content), "completion_window": window}
    found = client.post("/v1/batches", body)
    if not wait:
        _show(found, as_json=as_json)
        return
    try:
        found = _followed(client, found)
    except KeyboardInterrupt:
        output.note(f"The batch goes on: `jan-serve batch show {found['id']}`.")
        raise
    for kind, name in (("output", "answers"), ("error", "errors")):
        if found[f"{kind}_file_id"] is not None:
            target = path.with_suffix(f".{name}.jsonl")
            target.write_bytes(client.content(f"/v1/files/{found[f'{kind}_file_id']}/content"))
            output.note(f"{name}: {target}")
    _show(found, as_json=as_json)
    if found["status"] != "completed" or found["request_counts"]["failed"]:
        raise typer.Exit(1)


def _endpoint(path: Path, content: bytes) -> str:
    """The endpoint that the first line names."""
    first = next((line for line in content.splitlines() if line.strip()), b"")
    try:
        return str(json.loads(first)["url"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise WrongUse(f"{path}: its first line is no request with a `url`") from None


def _followed(client: ServerClient, found: Batch) -> Batch:
    """The batch once it has ended, with a bar on a terminal until then."""
    columns = (MofNCompleteColumn(), TimeRemainingColumn())
    with contextlib.closing(ProgressBar(found["id"], "{task.description}", *columns)) as bar:
        while found["status"] not in _ENDED:
            counts = found["request_counts"]
            done = counts["completed"] + counts["failed"]
            bar.update(done, counts["total"] or None, found["paused"] or found["status"])
            time.sleep(_LOOK_S)
            found = client.get(f"/v1/batches/{found['id']}")
    return found


def _list(client: ServerClient, *, as_json: bool) -> None:
    found = client.get("/v1/batches", {"limit": "100"})
    if as_json:
        output.json(found)
        return
    columns = ("batch", "status", "lines", "endpoint", "created")
    rows = [
        (each["id"], each["status"], _counts(each), each["endpoint"], _when(each)) for each in found["data"]
    ]
    if rows:
        output.table(columns, rows, optional=("created", "endpoint"))
    else:
        output.note("No batch.")


def _show(found: Batch, *, as_json: bool) -> None:
    if as_json:
        output.json(found)
        return
    rows = [
        ("batch", found["id"]),
        ("status", found["status"]),
        ("lines", _counts(found)),
        ("created", _when(found)),
    ]
    if found["paused"]:
        rows.append(("waits", found["paused"]))
    errors: dict[str, list[dict[str, Any]]] = found["errors"] or {"data": []}
    for fault in errors["data"][:_SHOWN_FAULTS]:
        rows.append((f"line {fault['line']}" if fault["line"] else "input", fault["message"]))
    output.table(("", ""), rows)


def _counts(found: Batch) -> str:
    counts = found["request_counts"]
    done = counts["completed"] + counts["failed"]
    failed = f", {counts['failed']} refused" if counts["failed"] else ""
    return f"{done} of {counts['total']}{failed}"


def _when(found: Batch) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(found["created_at"]))

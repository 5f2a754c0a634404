"""`jan-serve ls`: the models that can be served by name. Reads headers, loads nothing."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from jan_serve.cli.options import ConfigOption
from jan_serve.cli.output import Output
from jan_serve.config import load_settings
from jan_serve.errors import JanServeError
from jan_serve.store.entry import ModelEntry
from jan_serve.store.resolve import ModelResolver
from jan_serve.wiring import build_resolver


def ls(
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """List the models that can be served, with the name that requests use."""
    settings = load_settings(config_file=config).settings
    resolver = build_resolver(settings)
    rows = [_describe(resolver, entry) for entry in resolver.entries()]
    default = resolver.default()
    output = Output()
    if as_json:
        output.json({"models": rows, "default": default.entry.name if default.entry else None})
        return
    output.table(
        ("model", "size", "architecture", "context", "note"),
        [
            (
                row["name"],
                size_text(row["size_bytes"]),
                row["architecture"],
                str(row["n_ctx_train"] or ""),
                row["note"],
            )
            for row in rows
        ],
    )
    if default.entry is not None:
        output.note(f"Default model: {default.entry.name} ({default.reason}).")
    output.note(f"Models folder: {settings.models_dir}")


def _describe(resolver: ModelResolver, entry: ModelEntry) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": entry.name,
        "path": str(entry.path),
        "size_bytes": entry.size_bytes,
        "architecture": "",
        "n_ctx_train": None,
        "note": entry.origin if entry.origin != "models folder" else "",
    }
    try:
        model = resolver.model_file(entry.path, entry.name)
    except JanServeError as error:
        return row | {"note": f"cannot be served: {error.message}"}
    return row | {
        "size_bytes": model.file_bytes,
        "architecture": model.architecture,
        "n_ctx_train": model.n_ctx_train,
    }


def size_text(n_bytes: int) -> str:
    """A size for people: three digits and a decimal unit."""
    size = float(n_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}" if unit != "B" else f"{n_bytes} B"
        size /= 1000
    return f"{size:.3g} TB"

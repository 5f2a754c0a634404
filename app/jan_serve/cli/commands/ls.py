"""`jan-serve ls`: the models that can be served by name. Reads headers, loads nothing."""

from __future__ import annotations

from typing import Any, Final

from jan_serve.cli.options import ConfigOption, JsonOption, ModelsDirOption, store_names
from jan_serve.cli.output import Output
from jan_serve.errors import JanServeError
from jan_serve.store.gguf.model_file import PartName
from jan_serve.store.model_entry import ModelEntry
from jan_serve.store.resolve import ModelResolver

_SOURCES: Final = {
    "hub": "hub",
    "ollama": "Ollama",
    "lmstudio": "LM Studio",
    "jan": "Jan",
    "hf-cache": "HF cache",
}


def ls(config: ConfigOption = None, models_dir: ModelsDirOption = None, as_json: JsonOption = False) -> None:
    """List the models that can be served, with the name that requests use."""
    settings, resolver = store_names(config, models_dir)
    rows = [_describe(resolver, entry) for entry in resolver.entries()]
    default = resolver.default()
    output = Output()
    if as_json:
        output.json({"models": rows, "default": default.entry.name if default.entry else None})
        return
    output.table(
        ("model", "size", "quantisation", "architecture", "context", "source", "note"),
        [
            (
                row["name"],
                size_text(row["size_bytes"]),
                row["quantisation"] or "",
                row["architecture"],
                str(row["n_ctx_train"] or ""),
                row["source"],
                row["note"],
            )
            for row in rows
        ],
    )
    if default.entry is not None:
        output.note(f"Default model: {default.entry.name} ({default.reason}).")
    state = "" if settings.models_dir.is_dir() else " (not there yet)"
    output.note(f"Models folder: {settings.models_dir}{state}")


def _note(entry: ModelEntry) -> str:
    """Its other names, and its adapters."""
    parts = (("also", entry.all_aliases), ("with", tuple(f":{adapter}" for adapter in entry.adapters)))
    return "; ".join(f"{word} {', '.join(names)}" for word, names in parts if names)


def _describe(resolver: ModelResolver, entry: ModelEntry) -> dict[str, Any]:
    record = entry.record
    row: dict[str, Any] = {
        "name": entry.name,
        "aliases": list(entry.all_aliases),
        "adapters": list(entry.adapters),
        "path": str(entry.path),
        "source": source_text(entry),
        "size_bytes": sum(file.size_bytes for file in record.files)
        if record is not None
        else entry.size_bytes,
        "quantisation": None,
        "architecture": "",
        "n_ctx_train": None,
        "n_parameters": None,
        "note": _note(entry),
    }
    try:
        facts = resolver.facts(entry)
        if record is None and PartName.parse(entry.path.name) is not None:
            row["size_bytes"] = resolver.model_file(entry.path, entry.name).file_bytes
    except JanServeError as error:
        return row | {"note": f"cannot be served: {error.message}"}
    return row | {
        "quantisation": facts.quantisation,
        "architecture": facts.architecture,
        "n_ctx_train": facts.n_ctx_train,
        "n_parameters": facts.n_parameters or None,
    }


def source_text(entry: ModelEntry) -> str:
    """Where a model comes from, for people: the hub or the program, with the name that it has there."""
    if entry.record is None or entry.record.source.kind == "folder":
        return "" if entry.origin == "models folder" else entry.origin
    source = entry.record.source
    return f"{_SOURCES[source.kind]}: {source.name}"


def size_text(n_bytes: int) -> str:
    """A size for people: three digits and a decimal unit."""
    size = float(n_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}" if unit != "B" else f"{n_bytes} B"
        size /= 1000
    return f"{size:.3g} TB"

"""`jan-serve ls`: lists the models, from the headers of their files."""

from __future__ import annotations

from typing import Any, Final

from jan_serve.cli.arguments import ConfigOption, JsonOption, ModelsDirOption
from jan_serve.cli.options import store_names
from jan_serve.cli.output import output, size_text
from jan_serve.errors import JanServeError
from jan_serve.store.file_names import PartName
from jan_serve.store.index import ModelEntry
from jan_serve.store.resolve import ModelResolver

_SOURCES: Final = {
    "hub": "hub",
    "ollama": "Ollama",
    "lmstudio": "LM Studio",
    "jan": "Jan",
    "hf-cache": "HF cache",
}


def ls(config: ConfigOption = None, models_dir: ModelsDirOption = None, as_json: JsonOption = False) -> None:
    """List the local models with the names that requests use."""
    settings, resolver = store_names(config, models_dir)
    entries = resolver.entries()
    names = [_other_names(entry) for entry in entries]
    rows = [_describe(resolver, entry) for entry in entries]
    default = resolver.default()
    if as_json:
        for row, others in zip(rows, names, strict=True):
            row["note"] = "; ".join(filter(None, (others, row["note"])))
        output.json({"models": rows, "default": default.entry.name if default.entry else None})
        return
    output.table(
        ("model", "size", "quantisation", "architecture", "context", "source", "other names", "note"),
        [
            (
                row["name"],
                size_text(row["size_bytes"]),
                row["quantisation"] or "",
                row["architecture"],
                str(row["n_ctx_train"] or ""),
                row["source"],
                others,
                row["note"],
            )
            for row, others in zip(rows, names, strict=True)
        ],
        whole=("other names",),
        optional=("source", "architecture", "context", "other names", "quantisation"),
    )
    if default.entry is not None:
        output.note(f"Default model: {default.entry.name} ({default.reason}).")
    state = "" if settings.models_dir.is_dir() else " (not there yet)"
    output.note(f"Models folder: {settings.models_dir}{state}")


_SENSES: Final = {"vision": "sees", "audio": "hears"}


def _other_names(entry: ModelEntry) -> str:
    parts = (
        ("also", entry.all_aliases),
        ("variants", entry.variants),
        ("with", tuple(f":{adapter}" for adapter in entry.adapters)),
    )
    return "; ".join(f"{word} {', '.join(names)}" for word, names in parts if names)


def _describe(resolver: ModelResolver, entry: ModelEntry) -> dict[str, Any]:
    record = entry.record
    row: dict[str, Any] = {
        "name": entry.name,
        "aliases": list(entry.all_aliases),
        "variants": list(entry.variants),
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
        "modalities": ["text"],
        "has_chat_template": None,
        "note": "",
    }
    try:
        facts = resolver.effective_facts(entry)
        projector = resolver.projector(entry)
        if record is None and PartName.parse(entry.path.name) is not None:
            row["size_bytes"] = resolver.model_file(entry.path, entry.name).file_bytes
    except JanServeError as error:
        return row | {"note": f"cannot be served: {error.message}"}
    senses = projector.senses if projector is not None else ()
    notes = [*(["base"] if facts.is_base else []), *(_SENSES[sense] for sense in senses)]
    return row | {
        "quantisation": facts.quantisation,
        "architecture": facts.architecture,
        "n_ctx_train": facts.n_ctx_train,
        "n_parameters": facts.n_parameters or None,
        "modalities": ["text", *senses],
        "has_chat_template": facts.has_chat_template,
        "note": "; ".join(notes),
    }


def source_text(entry: ModelEntry) -> str:
    """The hub or the program that a model comes from, with its name there."""
    if entry.record is None or entry.record.source.kind == "folder":
        return "" if entry.origin == "models folder" else entry.origin
    source = entry.record.source
    return f"{_SOURCES[source.kind]}: {source.name}"

"""`jan-serve ls`, `show`, `use` and `rm`: the models of this machine, from their files."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import msgspec
import psutil

from jan_serve.cli.arguments import ConfigOption, JsonOption, ModelsDirOption, model_argument, option
from jan_serve.cli.errors import FAILED, CommandError, WrongUse
from jan_serve.cli.input import confirm
from jan_serve.cli.options import make_data_folder, store_names
from jan_serve.cli.output import output, size_text
from jan_serve.cli.server.hardware import accelerators
from jan_serve.errors import JanServeError
from jan_serve.placement.device_plan import plan_devices
from jan_serve.placement.report import advice, lines
from jan_serve.placement.workload import bytes_beside
from jan_serve.store.blobs import file_matches
from jan_serve.store.file_names import PartName
from jan_serve.store.gguf.gguf_header import read_gguf_header
from jan_serve.store.gguf.model_file import ModelFile, ProjectorFile
from jan_serve.store.gguf.quantisation import quantisation_of
from jan_serve.store.index import ModelEntry, ModelIndex
from jan_serve.store.measurements import certified
from jan_serve.store.model_folder import Removed, check_removable, is_own_file, remove_model
from jan_serve.store.resolve import ModelResolver
from jan_serve.wiring.parts import build_library

if TYPE_CHECKING:
    from jan_serve.config import Settings
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
    columns = {
        "model": [row["name"] for row in rows],
        "size": [size_text(row["size_bytes"]) for row in rows],
        "quantisation": [row["quantisation"] or "" for row in rows],
        "architecture": [row["architecture"] for row in rows],
        "context": [str(row["n_ctx_train"] or "") for row in rows],
        "source": [row["source"] for row in rows],
        "other names": names,
        "note": [row["note"] for row in rows],
    }
    optional = ("source", "architecture", "context", "other names", "quantisation")
    output.table([*columns], zip(*columns.values(), strict=True), whole=("other names",), optional=optional)
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
    size = entry.size_bytes if record is None else sum(file.size_bytes for file in record.files)
    row: dict[str, Any] = {
        "name": entry.name,
        "aliases": list(entry.all_aliases),
        "variants": list(entry.variants),
        "adapters": list(entry.adapters),
        "path": str(entry.path),
        "source": source_text(entry),
        "size_bytes": size,
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


def show_fit(name: str, settings: Settings, resolver: ModelResolver, *, as_json: bool) -> None:
    """Print the plan that a load would make now. Blocks for a second while it asks llama.cpp for its devices.
    Raises InsufficientMemory with the figures, InvalidModel, SettingsError."""
    from jan_serve.wiring.model_sources import ModelSources  # slow, and only needed here

    sources = ModelSources(resolver, settings)
    engine = sources.needs(sources.resolve(name).source).settings
    beside = bytes_beside(engine, os.path.getsize)
    plan = plan_devices(engine, accelerators(settings.rpc), psutil.virtual_memory().total, beside)
    if as_json:
        output.json(
            {
                "n_ctx": plan.n_ctx,
                "n_gpu_layers": plan.n_gpu_layers,
                "parts": [msgspec.to_builtins(part) | {"total": part.total} for part in plan.shares],
                "text": lines(plan.shares),
                "advice": advice(plan.shares, plan.warning),
            }
        )
        return
    for line in (*lines(plan.shares), *advice(plan.shares, plan.warning)):
        output.data(line)


_LABELS: Final = {"size_bytes": "size", "weights_bytes": "weights", "n_ctx_train": "context"}


def show(
    name: Annotated[str, model_argument("Name of a model, or path of a GGUF file.", "NAME")],
    template: Annotated[bool, option("--template", "Print only the chat template.")] = False,
    verify: Annotated[bool, option("--verify", "Verify the SHA-256 digests of the files.")] = False,
    fit: Annotated[
        bool, option("--fit", "Show where its parts go on this machine now, and what would make it faster.")
    ] = False,
    config: ConfigOption = None,
    models_dir: ModelsDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the files, source, digests, names and header of a model."""
    settings, resolver = store_names(config, models_dir)
    entry = resolver.entry_of_path(name) or resolver.resolve(name)
    if template:
        text = read_gguf_header(entry.path).text("tokenizer.chat_template")
        if text is None:
            raise CommandError(f"{entry.name} has no chat template.")
        output.raw(text)
        return
    model = resolver.model_file(entry.path, entry.name)
    if fit:
        show_fit(name, settings, resolver, as_json=as_json)
        return
    facts = _facts(entry, model, resolver.projector(entry))
    facts["enough_for"] = list(certified(settings.data_dir, entry.name).values())
    if verify:
        facts["verified"] = _verify(entry, settings.models_dir)
    if as_json:
        output.json(facts)
    else:
        output.table(("", entry.name), [row for key, value in facts.items() for row in _rows(key, value)])
    if verify and facts["verified"] is False:
        raise CommandError(
            f"A file of {entry.name} differs from the downloaded one.",
            "Remove the model and pull it again.",
            FAILED,
        )


def _facts(entry: ModelEntry, model: ModelFile, projector: ProjectorFile | None) -> dict[str, Any]:
    record = entry.record
    source = record.source if record is not None else None
    return {
        "name": entry.name,
        "aliases": list(entry.all_aliases),
        "adapters": list(entry.adapters),
        "source": source_text(entry),
        "revision": source.revision if source is not None else None,
        "title": model.name,
        "architecture": model.architecture,
        "parameters": model.n_parameters,
        "quantisation": quantisation_of(entry.path.name) or model.quantisation,
        "n_ctx_train": model.n_ctx_train,
        "layers": model.n_layer,
        "chat_template": model.chat_template is not None,
        "pooling": model.pooling,
        "size_bytes": model.file_bytes,
        "weights_bytes": model.tensor_bytes,
        "files": [str(path) for path in model.paths],
        "links_to": str(entry.path.resolve()) if entry.path.is_symlink() else None,
        "projector": str(projector.path) if projector is not None else None,
        "modalities": ["text", *(projector.senses if projector is not None else ())],
        "sha256": [file.sha256 for file in record.files if file.sha256] if record is not None else [],
    }


def _verify(entry: ModelEntry, models_dir: Path) -> bool | None:
    """Whether the recorded digests match; None if none is recorded. Blocks while it reads all files."""
    record = entry.record
    files = [] if record is None else [*record.files, *((record.projector,) if record.projector else ())]
    known = [(models_dir / file.path, file.size_bytes, file.sha256) for file in files if file.sha256]
    if not known:
        return None
    return all(asyncio.run(file_matches(path, size, digest)) for path, size, digest in known)


def _rows(key: str, value: Any) -> list[tuple[str, str]]:
    """A row for a value that is known, one for each item of a list."""
    items = cast(list[Any], value) if isinstance(value, list) else [value]
    texts = [text for item in items if (text := _text(key, item))]
    labels = (_LABELS.get(key, key.replace("_", " ")), *[""] * len(texts))
    return list(zip(labels, texts, strict=False))


def _text(key: str, value: Any) -> str:
    if value is None:
        return "unknown: no digest of its files is recorded" if key == "verified" else ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key.endswith("_bytes"):
        return size_text(value)
    if key == "parameters":
        unit, word = (10**9, " billion") if value >= 10**9 else (10**6, " million")
        return f"{value / unit:.3g}{word}" if value >= unit else f"{value:,}"
    return str(value)


def use(
    name: Annotated[str | None, model_argument("A model of `jan-serve ls`.", "NAME")] = None,
    last: Annotated[bool, option("--last", "Return to the model used last.")] = False,
    config: ConfigOption = None,
    models_dir: ModelsDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a model the default: of requests and commands that name none. Without NAME, show the default."""
    settings, resolver = store_names(config, models_dir)
    if name is not None or last:
        if name is not None and last:
            raise WrongUse("--last takes no NAME.", "Give one of them.")
        if settings.model:
            raise WrongUse(
                f"The setting `model` makes {settings.model} the default.",
                "`jan-serve config` shows where it is set: change or remove it there.",
            )
        make_data_folder(settings)
        resolver.choose_default(name)
    default = resolver.default()
    entry = default.entry
    if as_json:
        output.json({"default": entry.name if entry is not None else None, "reason": default.reason})
    elif entry is None:
        raise CommandError(f"There is no default model: {default.reason}.", "`jan-serve pull` downloads one.")
    else:
        output.data(f"{entry.name} ({default.reason})")


def rm(
    names: Annotated[
        list[str],
        model_argument(
            "Models to delete: full names, aliases, or paths in the models folder that end with .gguf.",
            "NAME",
        ),
    ],
    yes: Annotated[
        bool, option("--yes -y", "Delete files that you added by hand without confirmation.")
    ] = False,
    config: ConfigOption = None,
    models_dir: ModelsDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete models. Asks before deleting files that were not pulled or imported."""
    settings, resolver = store_names(config, models_dir)
    library = build_library(resolver, settings)
    found = [library.variant(name) for name in names]
    variants = {variant.name: variant for variant in found if variant is not None}
    names = [name for name, variant in zip(names, found, strict=True) if variant is None]
    # Resolve all names before the first deletion: one wrong name deletes nothing.
    entries = {entry.name: entry for entry in (resolver.resolve_exact(name) for name in names)}
    for entry in entries.values():
        check_removable(entry, settings.models_dir)
    by_hand = [entry for entry in entries.values() if not is_own_file(entry)]
    if by_hand and not yes:
        output.note(f"{', '.join(entry.name for entry in by_hand)}: not pulled or imported by jan-serve.")
        confirm("Delete?", "nothing was deleted")
    index = ModelIndex(settings.models_dir)
    removed: list[Removed] = []
    for name in variants:
        base = library.remove_variant(name)
        removed.append(Removed(name, (), 0))
        if base is not None and base not in entries:  # a file that was uploaded for it
            entries[base] = resolver.resolve_exact(base)
    removed += [remove_model(entry, settings.models_dir, index) for entry in entries.values()]
    if as_json:
        output.json(
            {
                "removed": [
                    {
                        "name": item.name,
                        "files": [str(path) for path in item.paths],
                        "freed_bytes": item.n_freed,
                    }
                    for item in removed
                ]
            }
        )
        return
    for item in removed:
        freed = f"{size_text(item.n_freed)} freed" if item.n_freed else "a link; the original file stays"
        if not item.paths:
            freed = f"a variant of {variants[item.name].base}"
        output.note(f"Removed {item.name} ({freed}).")

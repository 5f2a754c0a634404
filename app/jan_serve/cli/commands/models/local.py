"""`jan-serve ls`, `use` and `rm`: the models of this machine, from their files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from jan_serve.cli.arguments import ConfigOption, JsonOption, ModelsDirOption, model_argument, option
from jan_serve.cli.errors import CommandError, WrongUse
from jan_serve.cli.input import confirm
from jan_serve.cli.options import make_data_folder, store_names
from jan_serve.cli.output import output, size_text
from jan_serve.core.split_names import PartName
from jan_serve.errors import JanServeError
from jan_serve.store.index import ModelEntry, ModelIndex
from jan_serve.store.model_folder import Removed, check_removable, is_own_file, remove_model
from jan_serve.wiring.parts import build_library

if TYPE_CHECKING:
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

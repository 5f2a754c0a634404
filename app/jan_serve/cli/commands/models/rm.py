"""`jan-serve rm`: deletes models from the models folder. For links, the original file stays."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from jan_serve.cli.arguments import ConfigOption, JsonOption, ModelsDirOption, model_argument, option
from jan_serve.cli.errors import WrongUse
from jan_serve.cli.options import store_names
from jan_serve.cli.output import output, size_text
from jan_serve.store.index import ModelEntry, ModelIndex
from jan_serve.store.model_folder import Removed, check_removable, is_own_file, remove_model
from jan_serve.wiring.parts import build_library


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
        _confirm(by_hand)
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


def _confirm(entries: list[ModelEntry]) -> None:
    names = ", ".join(entry.name for entry in entries)
    if not sys.stdin.isatty():
        raise WrongUse(
            f"{names}: not pulled or imported by jan-serve, and not deleted without confirmation.",
            "Use --yes to delete them.",
        )
    output.note(f"{names}: not pulled or imported by jan-serve.")
    typer.confirm("Delete?", abort=True, err=True)

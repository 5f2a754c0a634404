"""`jan-serve import`: links models of Ollama, LM Studio, Jan and the Hugging Face cache, without copying."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from jan_serve.cli.arguments import ConfigOption, JsonOption, ModelsDirOption, argument, option
from jan_serve.cli.errors import CommandError, WrongUse
from jan_serve.cli.options import make_data_folder, store_settings
from jan_serve.cli.output import output, size_text
from jan_serve.errors import StoreError
from jan_serve.store.files import user_path
from jan_serve.store.imports.finders import FINDERS, TITLES, find
from jan_serve.store.imports.link import NAME_TAKEN, Assessment, ImportStatus, assess, take_over
from jan_serve.store.index import ModelIndex
from jan_serve.wiring.parts import other_programs

_SHOWN_KIND = {"hf-cache": "hf"}


def import_(
    names: Annotated[
        list[str] | None, argument("NAME", "Models to import, by their name in the table.")
    ] = None,
    programs: Annotated[
        list[str] | None, option("--from PROGRAM", f"Only from {', '.join(FINDERS)}; repeatable.")
    ] = None,
    folder: Annotated[
        Path | None, option("--folder FOLDER", "Models folder of that program; requires exactly one --from.")
    ] = None,
    everything: Annotated[bool, option("--all", "Import every new model.")] = False,
    config: ConfigOption = None,
    models_dir: ModelsDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Link models of other programs into the models folder. Without NAME or --all, list them."""
    chosen = programs or list(FINDERS)
    unknown = [program for program in chosen if program not in FINDERS]
    if unknown:
        raise WrongUse(f"Cannot import from {unknown[0]!r}.", f"--from takes {', '.join(FINDERS)}.")
    if folder is not None and len(chosen) != 1:
        raise WrongUse("--folder requires exactly one --from, the program that owns the folder.")
    settings = store_settings(config, models_dir)
    usual = other_programs()
    searched = {
        program: (user_path(folder).absolute(),) if folder is not None else usual[program]
        for program in chosen
    }
    found = [
        assess(model, settings.models_dir)
        for program, folders in searched.items()
        for model in find(program, folders)
    ]
    selected = _select(found, names or [], everything)
    if selected:
        make_data_folder(settings)
    failures = _import(selected, settings.models_dir)
    rows = [_row(item, failures, selected) for item in found]
    if as_json:
        output.json(
            {"models": rows, "folders": {name: [str(f) for f in fs] for name, fs in searched.items()}}
        )
    else:
        _print(rows, searched, hint=not names and not everything)
    if failures:
        raise typer.Exit(1)


def _select(found: Sequence[Assessment], names: Sequence[str], everything: bool) -> list[Assessment]:
    """All new models, the first of each name, or those that `names` select.
    Raises CommandError for an unknown or ambiguous name."""
    if everything:
        by_name: dict[str, Assessment] = {}
        for item in found:
            if item.state is ImportStatus.NEW:
                by_name.setdefault(item.name, item)
        return list(by_name.values())
    selected: list[Assessment] = []
    for name in names:
        matches = [item for item in found if name in (item.name, item.found.label)]
        if not matches:
            raise WrongUse(
                f"`{name}` was not found in other programs.", "`jan-serve import` lists the models."
            )
        if len(matches) > 1 and len({item.name for item in matches}) > 1:
            options = ", ".join(item.name for item in matches)
            raise WrongUse(f"`{name}` is ambiguous: {options}.", "Use one of these names.")
        usable = [item for item in matches if item.state is not ImportStatus.UNUSABLE]
        if not usable:
            raise CommandError(f"`{name}` cannot be imported: {matches[0].reason}.")
        if all(item.state is ImportStatus.NEW for item in usable):
            selected.append(usable[0])
    return selected


def _import(selected: Sequence[Assessment], models_dir: Path) -> dict[str, str]:
    """Import the models. Returns the failed ones with their reasons."""
    index = ModelIndex(models_dir)
    failures: dict[str, str] = {}
    for item in selected:
        try:
            take_over(item, models_dir, index)
        except StoreError as error:
            failures[item.name] = error.message
            output.error(f"{item.name}: {error.message}")
    return failures


def _row(item: Assessment, failures: dict[str, str], selected: Sequence[Assessment]) -> dict[str, Any]:
    state, reason = item.state.value, item.reason
    if item.name in failures:
        state, reason = "failed", failures[item.name]
    elif any(item is other for other in selected):
        state = "imported"
    elif item.state is ImportStatus.NEW and any(item.name == other.name for other in selected):
        state, reason = ImportStatus.UNUSABLE.value, NAME_TAKEN
    return {
        "name": item.name,
        "from": _SHOWN_KIND.get(item.found.kind, item.found.kind),
        "label": item.found.label,
        "size_bytes": item.found.n_bytes,
        "state": state,
        "reason": reason,
        "path": str(item.found.files[0].path),
    }


def _print(rows: Sequence[dict[str, Any]], searched: dict[str, tuple[Path, ...]], *, hint: bool) -> None:
    if not rows:
        output.note("No models of other programs were found. Searched folders:")
        for program, folders in searched.items():
            output.note(f"  {TITLES[program]}: {', '.join(str(folder) for folder in folders)}")
        output.note("Use --from PROGRAM --folder FOLDER to search another folder.")
        return
    output.table(
        ("model", "from", "size", "state"),
        [
            (
                row["name"],
                row["from"],
                size_text(row["size_bytes"]),
                f"{row['state']}: {row['reason']}" if row["reason"] else row["state"],
            )
            for row in rows
        ],
        optional=("from", "size"),
    )
    if hint and any(row["state"] == ImportStatus.NEW.value for row in rows):
        output.note(
            "`jan-serve import NAME` links one model, `jan-serve import --all` every new one. Nothing is copied."
        )

"""`jan-serve import`: use the models that Ollama, LM Studio, Jan and the Hugging Face cache have, without copying."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from jan_serve.cli.commands.ls import size_text
from jan_serve.cli.errors import WRONG_USE, CommandError
from jan_serve.cli.options import ConfigOption, JsonOption, ModelsDirOption, store_settings
from jan_serve.cli.output import Output
from jan_serve.config import ImportFolders, import_folders
from jan_serve.errors import StoreError
from jan_serve.store.imports.finders import FINDERS, TITLES, find
from jan_serve.store.imports.link import Assessment, State, assess, take_over
from jan_serve.store.imports.lmstudio import lmstudio_folders
from jan_serve.store.index import ModelIndex

_SHOWN_KIND = {"hf-cache": "hf"}


def import_(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Models to import, as the table names them."),
    ] = None,
    programs: Annotated[
        list[str] | None,
        typer.Option(
            "--from", metavar="PROGRAM", help=f"Only from {', '.join(FINDERS)}. May be given more than once."
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder", metavar="FOLDER", help="Where that program keeps its models; needs one --from."
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Import every model that can be.")] = False,
    config: ConfigOption = None,
    models_dir: ModelsDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Link models of other programs into the models folder. Without NAME or --all it shows what there is."""
    chosen = programs or list(FINDERS)
    unknown = [program for program in chosen if program not in FINDERS]
    if unknown:
        raise CommandError(
            f"There is no {unknown[0]!r} to import from.", f"--from takes {', '.join(FINDERS)}.", WRONG_USE
        )
    if folder is not None and len(chosen) != 1:
        raise CommandError("--folder needs one --from, which says whose folder it is.", status=WRONG_USE)
    settings = store_settings(config, models_dir)
    output = Output()
    around = import_folders()
    looked_into = {
        program: (folder.expanduser().absolute(),) if folder is not None else _folders(program, around)
        for program in chosen
    }
    found = [
        assess(model, settings.models_dir)
        for program, folders in looked_into.items()
        for model in find(program, folders)
    ]
    selected = _select(found, names or [], everything)
    failures = _import(selected, settings.models_dir, output)
    rows = [_row(item, failures, selected) for item in found]
    if as_json:
        output.json(
            {"models": rows, "folders": {name: [str(f) for f in fs] for name, fs in looked_into.items()}}
        )
    else:
        _print(rows, looked_into, output, asked=bool(names) or everything)
    if failures:
        raise typer.Exit(1)


def _folders(program: str, around: ImportFolders) -> tuple[Path, ...]:
    if program == "lmstudio":
        return lmstudio_folders(around.lmstudio_home)
    return {"ollama": around.ollama, "jan": around.jan, "hf": around.hf_cache}[program]


def _select(found: Sequence[Assessment], names: Sequence[str], everything: bool) -> list[Assessment]:
    """What to import: all that can be, or what `names` mean. Raises CommandError for a name that means nothing."""
    if everything:
        return [item for item in found if item.state is State.NEW]
    selected: list[Assessment] = []
    for name in names:
        matches = [item for item in found if name in (item.name, item.found.label)]
        if not matches:
            raise CommandError(
                f"`{name}` is not among the models that were found.", "`jan-serve import` lists them."
            )
        if len(matches) > 1 and len({item.name for item in matches}) > 1:
            options = ", ".join(item.name for item in matches)
            raise CommandError(f"`{name}` can be any of: {options}.", "Name one of these.", WRONG_USE)
        if matches[0].state is State.UNUSABLE:
            raise CommandError(f"`{name}` cannot be imported: {matches[0].reason}.")
        if matches[0].state is State.NEW:
            selected.append(matches[0])
    return selected


def _import(selected: Sequence[Assessment], models_dir: Path, output: Output) -> dict[str, str]:
    """Take them over one by one; the value has the names that failed, with the reasons."""
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
    return {
        "name": item.name,
        "from": _SHOWN_KIND.get(item.found.kind, item.found.kind),
        "label": item.found.label,
        "size_bytes": item.found.n_bytes,
        "state": state,
        "reason": reason,
        "path": str(item.found.files[0].path),
    }


def _print(
    rows: Sequence[dict[str, Any]], looked_into: dict[str, tuple[Path, ...]], output: Output, *, asked: bool
) -> None:
    if not rows:
        output.note("No models of other programs were found. These folders were looked into:")
        for program, folders in looked_into.items():
            output.note(f"  {TITLES[program]}: {', '.join(str(folder) for folder in folders)}")
        output.note("--from PROGRAM --folder FOLDER looks elsewhere.")
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
    )
    if not asked and any(row["state"] == State.NEW.value for row in rows):
        output.note(
            "`jan-serve import NAME` links one, `jan-serve import --all` every new one. Nothing is copied."
        )

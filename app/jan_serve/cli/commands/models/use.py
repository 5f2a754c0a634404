"""`jan-serve use`: chooses the model of requests and commands that name none."""

from __future__ import annotations

from typing import Annotated

import typer

from jan_serve.cli.commands.completion import model_argument
from jan_serve.cli.errors import WRONG_USE, CommandError
from jan_serve.cli.options import ConfigOption, JsonOption, ModelsDirOption, make_data_folder, store_names
from jan_serve.cli.output import Output


def use(
    name: Annotated[str | None, model_argument("A model of `jan-serve ls`.", "NAME")] = None,
    last: Annotated[bool, typer.Option("--last", help="Return to the model used last.")] = False,
    config: ConfigOption = None,
    models_dir: ModelsDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a model the default: of requests and commands that name none. Without NAME, show the default."""
    settings, resolver = store_names(config, models_dir)
    if name is not None or last:
        if name is not None and last:
            raise CommandError("--last takes no NAME.", "Give one of them.", WRONG_USE)
        if settings.model:
            raise CommandError(
                f"The setting `model` makes {settings.model} the default.",
                "`jan-serve config` shows where it is set: change or remove it there.",
                WRONG_USE,
            )
        make_data_folder(settings)
        resolver.choose_default(name)
    default = resolver.default()
    entry = default.entry
    output = Output()
    if as_json:
        output.json({"default": entry.name if entry is not None else None, "reason": default.reason})
    elif entry is None:
        raise CommandError(f"There is no default model: {default.reason}.", "`jan-serve pull` downloads one.")
    else:
        output.data(f"{entry.name} ({default.reason})")

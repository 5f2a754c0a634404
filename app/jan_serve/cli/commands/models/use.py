"""`jan-serve use`: chooses the model of requests and commands that name none."""

from __future__ import annotations

from typing import Annotated

from jan_serve.cli.arguments import ConfigOption, JsonOption, ModelsDirOption, model_argument, option
from jan_serve.cli.errors import CommandError, WrongUse
from jan_serve.cli.options import make_data_folder, store_names
from jan_serve.cli.output import output


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

"""`jan-serve launch`: starts a program with its settings for this server, without changing its files."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from jan_serve.cli.arguments import ConfigOption, UrlOption, argument, complete_model, option
from jan_serve.cli.client.loading import load_model
from jan_serve.cli.client.own_server import any_server
from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.commands.connect import note_short_context, note_verdict, read_facts, server_default
from jan_serve.cli.errors import CommandError, WrongUse
from jan_serve.cli.options import load_settings
from jan_serve.config import LoadedSettings
from jan_serve.editors.launches import LAUNCHES, Launch
from jan_serve.editors.recipe import NO_KEY, Folders, ServerFacts
from jan_serve.editors.recipes import RECIPES


def launch(
    program: Annotated[str, argument("|".join(LAUNCHES), "Program to start.")],
    arguments: Annotated[list[str] | None, argument("ARGS", "Its own arguments, after `--`.")] = None,
    model: Annotated[
        str | None, option("--model NAME", "Model to use.", autocompletion=complete_model)
    ] = None,
    n_ctx: Annotated[
        int | None,
        option("--n-ctx TOKENS", "Context length; starts a server with it for this command.", min=64),
    ] = None,
    url: UrlOption = None,
    config: ConfigOption = None,
) -> None:
    """Start a program that uses this server. Starts a server if none runs, and stops it at the end."""
    found = LAUNCHES.get(program)
    if found is None:
        raise WrongUse(f"{program}: jan-serve cannot start this.", f"Programs: {', '.join(LAUNCHES)}.")
    executable = shutil.which(found.command)
    if executable is None:
        raise CommandError(
            f"{found.command} is not installed, or is in no folder of PATH.",
            f"`jan-serve connect {program}` shows its settings.",
        )
    loaded = load_settings(config_file=config)
    with any_server(loaded, url, model=model, n_ctx=n_ctx) as client:
        facts = _facts(client, model, loaded)
        note_short_context(program, facts)
        note_verdict(program, facts, loaded.settings.data_dir)
        with tempfile.TemporaryDirectory(prefix="jan-serve-") as folder:
            status = _run(program, found, executable, arguments or [], facts, loaded, Path(folder))
    raise typer.Exit(status)


def _facts(client: ServerClient, model: str | None, loaded: LoadedSettings) -> ServerFacts:
    """Loads the model first: its context is known then."""
    needs_key = bool(loaded.settings.api_keys)
    default = loaded.settings.model or server_default(client)
    name = read_facts(client, model, default, needs_key=needs_key).model.name
    return read_facts(client, load_model(client, name), None, needs_key=needs_key)


def _run(
    program: str,
    found: Launch,
    executable: str,
    arguments: list[str],
    facts: ServerFacts,
    loaded: LoadedSettings,
    folder: Path,
) -> int:
    """The program's exit status. Ctrl-C is the program's."""
    recipe = RECIPES[program](facts, Folders(home=folder, config=folder, code=folder, zed=folder))
    file = folder
    if recipe.change is not None:
        file = recipe.change.path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(recipe.change.merge(""), encoding="utf-8")
    keys = loaded.settings.api_keys
    start = found.start(facts, keys[0].get_secret_value() if keys else NO_KEY, file)
    environment = {name: value for name, value in start.environment.items() if value}
    hidden = start.environment.keys() - environment.keys()
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    before = signal.signal(signal.SIGINT, _ignore)  # unlike SIG_IGN, the program does not inherit a handler
    try:
        return subprocess.run(
            [executable, *start.arguments, *arguments], env={**kept, **environment}, check=False
        ).returncode
    finally:
        signal.signal(signal.SIGINT, before)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """The program reacts to Ctrl-C, and this command waits for it."""

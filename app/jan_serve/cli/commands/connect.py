"""`jan-serve connect` and `launch`: other programs with this server, by their settings files or for one start."""

from __future__ import annotations

import difflib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, cast

import platformdirs
import typer

from jan_serve.cli.arguments import ConfigOption, UrlOption, argument, complete_model, option
from jan_serve.cli.client.loading import load_model
from jan_serve.cli.client.own_server import any_server
from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.errors import CommandError, WrongUse
from jan_serve.cli.input import confirm, read_file
from jan_serve.cli.options import load_settings
from jan_serve.cli.output import output
from jan_serve.config import LoadedSettings, server_address
from jan_serve.config.settings_loader import URL_VARIABLE
from jan_serve.core.placement import MAX_DEFAULT_N_CTX
from jan_serve.editors.launches import LAUNCHES, Launch
from jan_serve.editors.merging import set_aliases
from jan_serve.editors.recipe import NO_KEY, Change, Folders, Recipe, ServerFacts, editor_model
from jan_serve.editors.recipes import RECIPES
from jan_serve.store.files import write_atomically
from jan_serve.store.measurements import certified


def read_facts(
    client: ServerClient, model: str | None, default: str | None, *, needs_key: bool
) -> ServerFacts:
    """model: the one to use; default: the one to use if it can chat. Raises CommandError if no model can chat."""
    rows = cast(list[dict[str, Any]], client.get("/v1/models")["data"])
    models = tuple(editor_model(row, MAX_DEFAULT_N_CTX) for row in rows)
    chats = [each for each in models if each.is_chat]
    first = next((each for each in chats if each.name == (model or default)), None)
    if first is None and model is not None:
        raise WrongUse(
            f"{model}: the server has no chat model with this name.", "`jan-serve ls` lists the models."
        )
    if first is None and not chats:
        raise CommandError("the server has no chat model.", "`jan-serve pull --list` suggests some.")
    return ServerFacts(url=client.url, needs_key=needs_key, models=models, model=first or chats[0])


def default_model(client: ServerClient, loaded: LoadedSettings) -> str | None:
    """The model of requests that name none. A proxy has none."""
    return loaded.settings.model or client.get("/models").get("default")


_MAX_FILE_BYTES = 4 << 20


def connect(
    program: Annotated[str | None, argument("|".join(RECIPES), "Program to connect.")] = None,
    write: Annotated[
        bool, option("--write", "Show the change and write it to the settings file of the program.")
    ] = False,
    yes: Annotated[bool, option("--yes -y", "Write without confirmation.")] = False,
    model: Annotated[str | None, option("--model NAME", "Initial model.")] = None,
    url: UrlOption = None,
    config: ConfigOption = None,
) -> None:
    """Show the settings with which a program uses this server. Without PROGRAM, list the programs."""
    folders = editor_folders()
    if program is not None and program not in RECIPES:
        close = difflib.get_close_matches(program, RECIPES, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise WrongUse(f"{program}: unknown program.{hint}", f"Programs: {', '.join(RECIPES)}.")
    facts = server_facts(model, url, config)
    if program is None:
        _list(facts, folders)
        return
    recipe = RECIPES[program](facts, folders)
    if write:
        if recipe.change is None:
            raise WrongUse(
                f"jan-serve cannot write the settings of {recipe.title}.",
                "Run the command without --write for instructions.",
            )
        _write(recipe.change, ask=not yes)
        if recipe.aliases:
            _write_aliases(recipe, facts, url, config, ask=not yes)
    else:
        output.headline(recipe.title)
        if recipe.change is not None:
            output.note(f"In {recipe.change.path}:")
            output.raw(recipe.change.merge("").rstrip("\n"))
        if recipe.aliases:
            output.note(
                f"--write also lets {facts.model.name} answer to {', '.join(recipe.aliases)} on this server."
            )
    for step in recipe.steps:
        output.note(step)
    note_short_context(program, facts)
    note_verdict(program, facts, load_settings(config_file=config).settings.data_dir)
    if recipe.has_context and not facts.model.is_exact:
        name = facts.model.name
        output.note(
            f"{name} is not loaded, so its context size is an estimate. Run this command after"
            f" `jan-serve load {name}` for the exact size."
        )


def note_short_context(program: str, facts: ServerFacts) -> None:
    """Warn if the program's own prompt and a session do not fit."""
    found, n_ctx = LAUNCHES.get(program), facts.model.n_ctx
    if found is not None and n_ctx is not None and n_ctx < found.n_ctx:
        output.warning(
            f"The context of {facts.model.name} has {n_ctx} tokens, and {program} needs about {found.n_ctx}:"
            f" `jan-serve launch {program} --n-ctx {found.n_ctx}` gives it that many."
        )


def note_verdict(program: str, facts: ServerFacts, data_dir: Path) -> None:
    """Say what `jan-serve certify` found of the model for this program, if it did."""
    verdict = certified(data_dir, facts.model.name).get(program)
    if verdict is not None:
        output.note(f"{facts.model.name}, as `jan-serve certify` found it: {verdict}.")


def server_facts(model: str | None, url: str | None, config: Path | None) -> ServerFacts:
    """Raises CommandError if no server runs or no model can chat."""
    loaded = load_settings(config_file=config)
    address = server_address(loaded, url)
    with ServerClient(address) as client:
        return read_facts(client, model, default_model(client, loaded), needs_key=address.key is not None)


def editor_folders() -> Folders:
    """Settings folders of programs on this platform."""
    home = Path.home()
    platform = platformdirs.user_config_path(roaming=True)
    config = platform if sys.platform == "linux" else home / ".config"
    zed = platform / "Zed" if sys.platform == "win32" else config / "zed"
    return Folders(home=home, config=config, code=platform / "Code" / "User", zed=zed)


def _list(facts: ServerFacts, folders: Folders) -> None:
    recipes = {name: make(facts, folders) for name, make in RECIPES.items()}
    rows = [
        (name, each.title, str(each.change.path) if each.change is not None else "(in its own settings)")
        for name, each in recipes.items()
    ]
    output.table(("name", "program", "settings"), rows)
    output.note(f"Server: {facts.url}. Initial model: {facts.model.name}.")
    output.note("`jan-serve connect NAME` shows the settings; --write writes them.")


def _write_aliases(
    recipe: Recipe, facts: ServerFacts, url: str | None, config: Path | None, *, ask: bool
) -> None:
    """Write them into the configuration file of this machine's server, which reads it at the next request."""
    loaded = load_settings(config_file=config)
    if server_address(loaded, url).origin in ("--url", URL_VARIABLE):
        output.note(
            f"The configuration file of {facts.url} is not known here: add the aliases"
            f" {', '.join(recipe.aliases)} to {facts.model.name} there."
        )
        return
    model, aliases = facts.model.name, recipe.aliases
    _write(Change(loaded.config_file, lambda text: set_aliases(text, model, aliases)), ask=ask)


def _write(change: Change, *, ask: bool) -> None:
    # Write to the target of a symbolic link and keep the link.
    path = change.path.resolve()
    try:
        old = read_file(path, _MAX_FILE_BYTES) if path.exists() else ""
    except WrongUse as error:  # the file of a program, which the user did not name
        raise CommandError(error.message, "The file is unchanged.") from None
    try:
        new = change.merge(old.replace("\r\n", "\n"))
    except ValueError as error:
        raise CommandError(
            f"{change.path} is unchanged: {error}.",
            "Run the command without --write and add the settings by hand.",
        ) from None
    if "\r\n" in old:  # keep its line endings
        new = new.replace("\n", "\r\n")
    if new == old:
        output.note(f"{change.path} already has these settings.")
        return
    for line in difflib.unified_diff(
        old.splitlines(), new.splitlines(), f"{change.path} (now)", f"{change.path} (then)", lineterm=""
    ):
        output.raw(line)
    if ask:
        confirm(f"Write {change.path}?", f"{change.path} was not written")
    try:
        mode = path.stat().st_mode if path.exists() else 0o600  # it may hold the key
        write_atomically(path, new.encode(), mode=mode)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from None
    output.note(f"Wrote {change.path}.")


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
        needs_key = bool(loaded.settings.api_keys)
        name = read_facts(client, model, default_model(client, loaded), needs_key=needs_key).model.name
        # Its context is known once it is loaded.
        facts = read_facts(client, load_model(client, name), None, needs_key=needs_key)
        note_short_context(program, facts)
        note_verdict(program, facts, loaded.settings.data_dir)
        with tempfile.TemporaryDirectory(prefix="jan-serve-") as folder:
            status = _run(program, found, executable, arguments or [], facts, loaded, Path(folder))
    raise typer.Exit(status)


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

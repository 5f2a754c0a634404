"""`jan-serve connect`: shows or writes the settings with which editors and other programs use this server."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import Annotated, Any, cast

import platformdirs
import typer

from jan_serve.cli.arguments import ConfigOption, UrlOption, argument, option
from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.errors import CommandError, WrongUse
from jan_serve.cli.options import load_settings
from jan_serve.cli.output import output
from jan_serve.config import server_address
from jan_serve.config.settings_loader import URL_VARIABLE
from jan_serve.core.placement import MAX_DEFAULT_N_CTX
from jan_serve.editors.launches import LAUNCHES
from jan_serve.editors.recipe import Change, Folders, Recipe, ServerFacts, editor_model
from jan_serve.editors.recipes import RECIPES
from jan_serve.editors.toml_file import set_aliases
from jan_serve.store.files import TooLarge, read_limited, write_atomically
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


def server_default(client: ServerClient) -> str | None:
    """The model of requests that name none. A proxy has none."""
    name = client.get("/models").get("default")
    return name if isinstance(name, str) else None


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
        _write(recipe, ask=not yes)
        if recipe.aliases:
            _write_aliases(recipe, facts, url, config, ask=not yes)
    else:
        _show(recipe)
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
        default = loaded.settings.model or server_default(client)
        return read_facts(client, model, default, needs_key=address.key is not None)


def editor_folders() -> Folders:
    """Settings folders of programs on this platform."""
    home = Path.home()
    platform = platformdirs.user_config_path(roaming=True)
    config = platform if sys.platform == "linux" else home / ".config"
    zed = platform / "Zed" if sys.platform == "win32" else config / "zed"
    return Folders(home=home, config=config, code=platform / "Code" / "User", zed=zed)


def _list(facts: ServerFacts, folders: Folders) -> None:
    rows: list[tuple[str, str, str]] = []
    for name, make in RECIPES.items():
        recipe = make(facts, folders)
        path = str(recipe.change.path) if recipe.change is not None else "(in its own settings)"
        rows.append((name, recipe.title, path))
    output.table(("name", "program", "settings"), rows)
    output.note(f"Server: {facts.url}. Initial model: {facts.model.name}.")
    output.note("`jan-serve connect NAME` shows the settings; --write writes them.")


def _show(recipe: Recipe) -> None:
    output.headline(recipe.title)
    if recipe.change is not None:
        output.note(f"In {recipe.change.path}:")
        output.raw(recipe.change.merge("").rstrip("\n"))


def _write(recipe: Recipe, *, ask: bool) -> None:
    change = recipe.change
    if change is None:
        raise WrongUse(
            f"jan-serve cannot write the settings of {recipe.title}.",
            "Run the command without --write for instructions.",
        )
    _write_change(change, ask=ask)


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
    _write_change(Change(loaded.config_file, lambda text: set_aliases(text, model, aliases)), ask=ask)


def _write_change(change: Change, *, ask: bool) -> None:
    # Write to the target of a symbolic link and keep the link.
    path = change.path.resolve()
    old = _read(path)
    new = _merged(change, old)
    if new == old:
        output.note(f"{change.path} already has these settings.")
        return
    for line in difflib.unified_diff(
        old.splitlines(), new.splitlines(), f"{change.path} (now)", f"{change.path} (then)", lineterm=""
    ):
        output.raw(line)
    if ask:
        _confirm(change.path)
    try:
        mode = path.stat().st_mode if path.exists() else 0o600  # it may hold the key
        write_atomically(path, new.encode(), mode=mode)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from None
    output.note(f"Wrote {change.path}.")


def _merged(change: Change, old: str) -> str:
    """The new text with the line endings of the old one."""
    crlf = "\r\n" in old
    try:
        new = change.merge(old.replace("\r\n", "\n"))
    except ValueError as error:
        raise CommandError(
            f"{change.path} is unchanged: {error}.",
            "Run the command without --write and add the settings by hand.",
        ) from None
    return new.replace("\n", "\r\n") if crlf else new


def _read(path: Path) -> str:
    try:
        return read_limited(path, _MAX_FILE_BYTES).decode("utf-8")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from None
    except TooLarge as error:
        raise CommandError(f"{path} {error}, too large for a settings file.") from None
    except UnicodeDecodeError as error:
        raise CommandError(
            f"{path} is not UTF-8 text (byte {error.start}).", "The file is unchanged."
        ) from None


def _confirm(path: Path) -> None:
    if not sys.stdin.isatty():
        raise WrongUse(f"{path} was not written: standard input is not a terminal.", "Use --yes to write it.")
    typer.confirm(f"Write {path}?", abort=True, err=True)

"""`jan-serve logs`: the log of the running server, or the end of its log file if none runs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.errors import NO_SERVER, WRONG_USE, CommandError
from jan_serve.cli.options import ConfigOption, UrlOption
from jan_serve.cli.output import Output
from jan_serve.cli.settings import load_settings
from jan_serve.cli.tail import last_lines
from jan_serve.config import server_address
from jan_serve.logs.log_lines import fields_text

_LEVELS: Final = ("debug", "info", "warning", "error")
_COLOURS: Final = {"warning": "yellow", "error": "bold red", "critical": "bold red"}
_OWN_FIELDS: Final = frozenset({"time", "level", "logger", "message", "traceback"})


def logs(
    lines: Annotated[
        int, typer.Option("--lines", "-n", metavar="N", min=0, max=2000, help="Number of last lines.")
    ] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow new lines until Ctrl-C.")] = False,
    level: Annotated[
        str, typer.Option("--level", metavar="|".join(_LEVELS), help="Lowest level to show.")
    ] = "debug",
    url: UrlOption = None,
    config: ConfigOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line, for programs.")
    ] = False,
) -> None:
    """Show the log of the running server. It never contains prompts or answers."""
    if level not in _LEVELS:
        raise CommandError(f"--level: {level!r} is not one of {', '.join(_LEVELS)}.", status=WRONG_USE)
    loaded = load_settings(config_file=config)
    output = Output()
    query = {"lines": str(lines), "level": level}
    address = server_address(loaded, url)
    try:
        with ServerClient(address) as client:
            if follow:
                _print(client.events("/logs", params=query | {"follow": "true"}), output, as_json=as_json)
                output.note("The server has stopped.")
            else:
                _print(client.get("/logs", query)["lines"], output, as_json=as_json)
    except CommandError as error:
        file = loaded.settings.log_file
        named = url is not None or address.origin == "JAN_SERVE_URL"
        if error.status != NO_SERVER or named or follow or as_json or file is None or not file.is_file():
            raise
        _print_file(file, lines, output)


def _print(records: Iterable[dict[str, Any]], output: Output, *, as_json: bool) -> None:
    for record in records:
        if as_json:
            output.json_line(record)
        else:
            output.styled(*_parts(record))
            for line in str(record.get("traceback", "")).splitlines():
                output.styled((f"    {line}", "dim"))


def _parts(record: dict[str, Any]) -> list[tuple[str, str]]:
    """(text, style) parts of a record, in the format of the server on a terminal, with the date."""
    level = str(record.get("level", ""))
    fields = fields_text({name: value for name, value in record.items() if name not in _OWN_FIELDS})
    return [
        (f"{_local_time(str(record.get('time', '')))} ", "dim"),
        (f"{level.upper():<7} ", _COLOURS.get(level, "")),
        (f"{record.get('logger', '')}: ", "dim"),
        (str(record.get("message", "")), ""),
        (fields, "dim"),
    ]


def _local_time(text: str) -> str:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return time.astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _print_file(path: Path, lines: int, output: Output) -> None:
    try:
        found = last_lines(path, lines)
    except OSError as error:
        raise CommandError(f"no server runs, and {path} cannot be read: {error.strerror}") from None
    for line in found:
        output.data(line)
    output.note(f"No server runs. This is the end of {path}.")

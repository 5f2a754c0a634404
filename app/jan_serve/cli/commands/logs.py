"""`jan-serve logs`: the log of the running server, or the end of its log file if none runs.
`last_lines` and `follow_lines` read a log file across rotation and restarts, like `tail -F`."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

from jan_serve.cli.arguments import ConfigOption, UrlOption, option
from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.errors import NO_SERVER, CommandError, WrongUse
from jan_serve.cli.options import load_settings
from jan_serve.cli.output import output
from jan_serve.config import server_address
from jan_serve.logs.log_lines import fields_text

_POLL_S: Final = 0.25
_MAX_TAIL_BYTES: Final = 4 << 20


def last_lines(path: Path, n_lines: int) -> list[str]:
    """The last lines of the file and, if it has too few, of its predecessor `.1`. Raises OSError."""
    file = _open(path)
    if file is None:
        return _fill_up([], path, n_lines)
    with file:
        lines, rest = _tail(file, n_lines)
    shown = [*lines, rest.decode("utf-8", "replace")] if rest else lines
    return _fill_up(shown, path, n_lines)


def follow_lines(
    path: Path, n_lines: int, wait: Callable[[], None] = lambda: time.sleep(_POLL_S)
) -> tuple[list[str], Generator[str]]:
    """The last lines, and an endless generator of the complete lines written after them. Raises OSError.
    No line is lost or repeated between the two. wait: called between two polls. The file need not exist yet. After a
    rename, the rest of the old file precedes the lines of the new one."""
    file = _open(path)
    lines, rest = ([], b"") if file is None else _tail(file, n_lines)
    return _fill_up(lines, path, n_lines), _next_lines(path, file, rest, wait)


def _next_lines(path: Path, file: BinaryIO | None, rest: bytes, wait: Callable[[], None]) -> Generator[str]:
    """Starts at the position of `file`. rest: the part of an incomplete line that was read before."""
    try:
        while True:
            file = file or _open(path)
            data = file.read() if file is not None else b""
            if data:
                *whole, rest = (rest + data).split(b"\n")
                yield from (line.decode("utf-8", "replace") for line in whole)
            elif file is not None and _is_replaced(file, path):
                file.close()
                file, rest = None, b""
            else:
                wait()
    finally:
        if file is not None:
            file.close()


def _open(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


def _is_replaced(file: BinaryIO, path: Path) -> bool:
    """Whether the path now names another file, or the file was truncated."""
    try:
        current = path.stat()
    except FileNotFoundError:
        return False
    opened = os.fstat(file.fileno())
    same = (current.st_dev, current.st_ino) == (opened.st_dev, opened.st_ino)
    return not same or current.st_size < file.tell()


def _tail(file: BinaryIO, n_lines: int) -> tuple[list[str], bytes]:
    """The last complete lines, and the incomplete line after them. Reads the file to its end."""
    size = file.seek(0, os.SEEK_END)
    start = max(0, size - _MAX_TAIL_BYTES)
    file.seek(start)
    *whole, rest = file.read().split(b"\n")
    # The first line may be cut.
    last = deque(whole[1:] if start else whole, maxlen=n_lines)
    return [line.decode("utf-8", "replace") for line in last], rest


def _fill_up(lines: list[str], path: Path, n_lines: int) -> list[str]:
    """The last n_lines; missing ones come from the rotated file."""
    missing = n_lines - len(lines)
    if missing <= 0:
        return lines[-missing:]
    rotated = _open(path.with_name(path.name + ".1"))
    if rotated is None:
        return lines
    with rotated:
        return [*_tail(rotated, missing)[0], *lines]


_LEVELS: Final = ("debug", "info", "warning", "error")
_COLOURS: Final = {"warning": "yellow", "error": "bold red", "critical": "bold red"}
_OWN_FIELDS: Final = frozenset({"time", "level", "logger", "message", "traceback"})


def logs(
    lines: Annotated[int, option("--lines -n N", "Number of last lines.", min=0, max=2000)] = 100,
    follow: Annotated[bool, option("--follow -f", "Follow new lines until Ctrl-C.")] = False,
    level: Annotated[str, option(f"--level {'|'.join(_LEVELS)}", "Lowest level to show.")] = "debug",
    url: UrlOption = None,
    config: ConfigOption = None,
    as_json: Annotated[bool, option("--json", "Print one JSON object per line, for programs.")] = False,
) -> None:
    """Show the log of the running server. It never contains prompts or answers."""
    if level not in _LEVELS:
        raise WrongUse(f"--level: {level!r} is not one of {', '.join(_LEVELS)}.")
    loaded = load_settings(config_file=config)
    query = {"lines": str(lines), "level": level}
    address = server_address(loaded, url)
    try:
        with ServerClient(address) as client:
            if follow:
                _print(client.events("/logs", params=query | {"follow": "true"}), as_json=as_json)
                output.note("The server has stopped.")
            else:
                _print(client.get("/logs", query)["lines"], as_json=as_json)
    except CommandError as error:
        file = loaded.settings.log_file
        named = url is not None or address.origin == "JAN_SERVE_URL"
        if error.status != NO_SERVER or named or follow or as_json or file is None or not file.is_file():
            raise
        try:
            found = last_lines(file, lines)
        except OSError as failure:
            raise CommandError(f"no server runs, and {file} cannot be read: {failure.strerror}") from None
        for line in found:
            output.data(line)
        output.note(f"No server runs. This is the end of {file}.")


def _print(records: Iterable[dict[str, Any]], *, as_json: bool) -> None:
    for record in records:
        if as_json:
            output.json_line(record)
        else:
            output.styled(*_parts(record))
            for line in str(record.get("traceback", "")).splitlines():
                output.styled((f"    {line}", "dim"))


def _parts(record: dict[str, Any]) -> list[tuple[str, str]]:
    """(text, style) parts of a record, in the format of the server on a terminal, with the date."""
    level, when = str(record.get("level", "")), str(record.get("time", ""))
    with contextlib.suppress(ValueError):
        when = datetime.fromisoformat(when).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    fields = fields_text({name: value for name, value in record.items() if name not in _OWN_FIELDS})
    return [
        (f"{when} ", "dim"),
        (f"{level.upper():<7} ", _COLOURS.get(level, "")),
        (f"{record.get('logger', '')}: ", "dim"),
        (str(record.get("message", "")), ""),
        (fields, "dim"),
    ]

"""Declares a setting: its default, documentation and command-line form, the types of its values, and words for
mistakes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic.fields import FieldInfo

from jan_serve.store.files import in_unknown_home, user_path


class Flag(msgspec.Struct, frozen=True):
    """Command-line form of a field: its panel of the help, and its name if it differs from the field's.
    also: another program's variable that sets it; ours takes precedence."""

    panel: str
    name: str | None = None
    metavar: str | None = None
    also: str | None = None


def setting(panel: str, default: Any, description: str, **form: str) -> Any:
    """A field of a model of settings. default: `...` for a value that a validator derives. form: see Flag."""
    return Field(default, description=description, json_schema_extra={"panel": panel, **form})


server_setting = partial(setting, "Server")
access_setting = partial(setting, "Access")
fleet_setting = partial(setting, "Many machines")
limit = partial(setting, "Limits")
storage_setting = partial(setting, "Storage")
model_setting = partial(setting, "Model")
memory_setting = partial(setting, "Memory and speed")
watchdog_setting = partial(setting, "Watchdog")
log_setting = partial(setting, "Logging")

PANELS: Final = (
    "Server", "Access", "Many machines", "Limits", "Storage", "Model", "Memory and speed", "Watchdog", "Logging"
)  # fmt: skip
"""Groups of settings in display order, before those of dialects."""


def flag_of(info: FieldInfo) -> Flag:
    """The command-line form of a field that `setting` has declared."""
    return msgspec.convert(info.json_schema_extra, Flag)


HOST_NAME: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+)(:\d{1,5})?\Z")
_SIZE = re.compile(
    r"(?P<number>\d{1,15}(\.\d{1,6})?) ?((?P<prefix>[kmgt])(?P<binary>i)?)?b?\Z", re.IGNORECASE
)


def _split_list(value: object) -> object:
    """Split a comma-separated string, the form of lists in environment variables."""
    if isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    return value


def _absolute(path: Path) -> Path:
    """Raises ValueError for the home of an unknown user: it would be a folder `~name` in the working directory."""
    found = user_path(path)
    if in_unknown_home(found):
        raise ValueError(f"is in the home of a user that this machine does not know: {found.parts[0]}")
    return found.absolute()


def _none_word(value: object) -> object:
    """`none` means no file: flags, variables and TOML have no null."""
    return None if value == "none" else value


def bytes_of_size(value: object) -> object:
    """`8GB`, `7.5 GiB` and `500M` as bytes. Anything else is left to the field's type.
    Raises ValueError for a part of a byte."""
    match = _SIZE.match(value.strip()) if isinstance(value, str) else None
    if match is None:
        return value
    if "." in match["number"] and not match["prefix"]:
        raise ValueError(f"{value} is no number of bytes: it lacks a unit, as in 8GB")
    power = "kmgt".find(match["prefix"].lower()) + 1 if match["prefix"] else 0
    return int(float(match["number"]) * (1024 if match["binary"] else 1000) ** power)


def budget_bytes(value: object) -> object:
    """`auto`, `off`, or bytes. Raises ValueError."""
    found = bytes_of_size(value)
    if found in ("auto", "off") or (type(found) is int and found >= 0):
        return found
    raise ValueError("must be auto, off, or a size such as 8GB")


def check_url(url: str, example: str) -> str:
    """The URL without a slash at the end. Raises ValueError."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        is_address = is_address and "@" not in parts.netloc
    except ValueError:  # of the brackets, or of the port
        is_address = False
    if not is_address:
        raise ValueError(f"must be an address such as {example}, without user and password")
    if any(mark in url for mark in " ?#") or not url.isascii() or not url.isprintable():
        raise ValueError("must end with the host or a path, in printable ASCII characters without blanks")
    return url.rstrip("/")


def url_like(example: str) -> AfterValidator:
    return AfterValidator(lambda url: check_url(url, example))


StrList = Annotated[tuple[str, ...], BeforeValidator(_split_list)]
PortList = Annotated[tuple[Annotated[int, Field(ge=1, le=65535)], ...], BeforeValidator(_split_list)]
SecretList = Annotated[tuple[SecretStr, ...], BeforeValidator(_split_list)]
Folder = Annotated[Path, AfterValidator(_absolute)]
OptionalFile = Annotated[Folder | None, BeforeValidator(_none_word)]


_MAX_LENGTH = 80


def sentence(message: str) -> str:
    """Pydantic's "Input should be …" as the predicate of a sentence about the field."""
    message = message.removeprefix("Value error, ").partition(", unable to ")[0]
    for original, replacement in (
        ("Input should be", "must be"),
        ("String should", "must"),
        ("Tuple should", "must"),
    ):
        message = message.replace(original, replacement)
    return message.replace("a valid tuple", "a list")


def brief(value: Any) -> str:
    """A value for a message, truncated."""
    text = repr(str(value) if isinstance(value, Path) else value)
    return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 3] + "..."


def near_key(name: str, known: Iterable[str]) -> str:
    """A hint at a similar known key; empty if there is none."""
    close = difflib.get_close_matches(name.lower().replace("-", "_"), list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""

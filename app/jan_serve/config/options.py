"""The fields of Settings as flags, variables and documentation, derived from their declarations."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin

import msgspec
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from jan_serve.config.fields import PANELS, flag_of
from jan_serve.config.model_options import ModelOptions
from jan_serve.config.settings import ENV_PREFIX, Settings

_SHARED = frozenset(ModelOptions.model_fields)


class Option(msgspec.Struct, frozen=True):
    """One setting: field (the file key too), flag, variable, another program's variable, and documentation."""

    field: str
    flag: str
    variable: str
    panel: str
    description: str
    metavar: str
    also: str | None
    bounds: str
    default: str
    is_switch: bool
    is_list: bool
    is_secret: bool


@cache
def setting_options(kind: type[Settings] = Settings) -> tuple[Option, ...]:
    """All settings by panel, the server's own first, in the order of definition; then those of dialects."""
    options = [_option(name, info) for name, info in kind.model_fields.items()]
    panels = list(dict.fromkeys((*PANELS, *sorted({each.panel for each in options}))))
    return tuple(sorted(options, key=lambda each: (panels.index(each.panel), each.field in _SHARED)))


def _option(name: str, info: FieldInfo) -> Option:
    flag = flag_of(info)
    kinds = tuple(_kinds(info.annotation))
    is_switch = bool in kinds
    dashed = name.replace("_", "-")
    return Option(
        field=name,
        flag=flag.name
        or (f"--{dashed}/--no-{dashed}" if is_switch and info.default is True else f"--{dashed}"),
        variable=ENV_PREFIX + name.upper(),
        panel=flag.panel,
        description=info.description or "",
        metavar=flag.metavar or _metavar(name, kinds),
        also=flag.also,
        bounds=bounds(info.metadata),
        default=_default(info),
        is_switch=is_switch,
        is_list=tuple in kinds,
        is_secret=SecretStr in kinds,
    )


def _kinds(annotation: Any) -> Iterable[Any]:
    """The plain types and literal values in an annotation, with unions and Annotated unwrapped."""
    origin = get_origin(annotation)
    if origin is Literal:
        yield from get_args(annotation)
    elif origin in (Union, UnionType):
        for part in get_args(annotation):
            yield from _kinds(part)
    elif origin is tuple:
        yield tuple
        yield from (kind for part in get_args(annotation) if part is not Ellipsis for kind in _kinds(part))
    elif annotation is not type(None):
        yield getattr(annotation, "__origin__", annotation)


def _metavar(name: str, kinds: tuple[Any, ...]) -> str:
    words = [kind for kind in kinds if isinstance(kind, str)]
    if words:
        return "|".join(words)
    shown = {Path: "FOLDER", int: "N", float: "SECONDS" if name.endswith("_s") else "NUMBER"}
    return next((text for kind, text in shown.items() if kind in kinds), "TEXT")


def bounds(metadata: Iterable[Any]) -> str:
    """The limits of a number, for documentation."""
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    return ", ".join(
        f"{word} {getattr(item, name)}"
        for item in metadata
        for name, word in words.items()
        if hasattr(item, name)
    )


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "by platform"
    value = info.default
    if value is None or value == ():
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return ",".join(map(str, cast(tuple[object, ...], value)))
    return str(value)

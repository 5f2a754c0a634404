"""Formats of `--format` and `/format`: any JSON, a JSON Schema, or a grammar."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from jan_serve.cli.errors import WRONG_USE, CommandError
from jan_serve.cli.input import read_file
from jan_serve.core.nesting import is_deeper
from jan_serve.store.paths import user_path

_MAX_BYTES: Final = 1 << 20
_MAX_DEPTH: Final = 200


class AnswerFormat(msgspec.Struct, frozen=True):
    """fields: added to the request. name: as the user typed it."""

    name: str
    fields: Mapping[str, Any]


def read_format(name: str) -> AnswerFormat:
    """name: `json`, a file with a JSON Schema or GBNF, or a grammar of the server. Raises CommandError."""
    if name == "json":
        return AnswerFormat(name, {"response_format": {"type": "json_object"}})
    path = user_path(name)
    if not os.path.isfile(path):
        if path.suffix or len(path.parts) > 1:
            raise CommandError(
                f"There is no file {name}.",
                "A format is `json`, a file, or the name of a grammar.",
                WRONG_USE,
            )
        return AnswerFormat(name, {"grammar": name})
    text = read_file(path, _MAX_BYTES)
    if "::=" in text:
        return AnswerFormat(name, {"grammar": text})
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{name} is neither JSON nor GBNF: {error}", None, WRONG_USE) from None
    if is_deeper(schema, _MAX_DEPTH):
        raise CommandError(f"{name} nests deeper than {_MAX_DEPTH} levels.", None, WRONG_USE)
    wrapped = {"type": "json_schema", "json_schema": {"name": path.stem, "schema": schema}}
    return AnswerFormat(name, {"response_format": wrapped})

"""Sets values and tables in a TOML text; comments and all else stay (tomlkit)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import tomlkit
from tomlkit import TOMLDocument
from tomlkit.exceptions import TOMLKitError


def set_values(text: str, values: Mapping[str, Any]) -> str:
    """Set top-level values, before the tables. Raises ValueError for invalid TOML."""
    document = parsed(text)
    table = cast(dict[str, Any], document)
    for key, value in values.items():
        if table.get(key) != value:
            table[key] = value
    return tomlkit.dumps(document)


def set_table(text: str, path: Sequence[str], values: Mapping[str, Any]) -> str:
    """Replace the table at `path` by these values. Raises ValueError for invalid TOML."""
    document = parsed(text)
    table = cast(dict[str, Any], document)
    for key in path[:-1]:
        if key not in table:
            table[key] = tomlkit.table(is_super_table=True)
        if not isinstance(table[key], Mapping):
            raise ValueError(f"{key} is not a table")
        table = cast(dict[str, Any], table[key])
    if table.get(path[-1]) == dict(values):
        return text
    new = tomlkit.table()
    for key, value in values.items():
        new[key] = value
    table[path[-1]] = new
    return tomlkit.dumps(document)


def parsed(text: str) -> TOMLDocument:
    """Raises ValueError for invalid TOML."""
    try:
        return tomlkit.parse(text)
    except TOMLKitError as error:
        raise ValueError(str(error)) from None

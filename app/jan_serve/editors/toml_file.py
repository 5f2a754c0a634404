"""Sets values, tables and aliases of models in a TOML text; comments and all else stay (tomlkit)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

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
        table = _table(table, key, is_super=True)
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


_MODELS: Final = "models"
_ALIASES: Final = "aliases"


def set_aliases(text: str, model: str, aliases: Sequence[str]) -> str:
    """Add the aliases to the model's table, and take them from the tables of others. Raises ValueError."""
    document = parsed(text)
    models = _table(cast(dict[str, Any], document), _MODELS, is_super=True)
    wanted = {alias.casefold() for alias in aliases}
    for name in list(models):
        if name != model:
            entry = _table(models, name)
            others = _names(entry, name)
            kept = [alias for alias in others if alias.casefold() not in wanted]
            if kept != others:
                entry[_ALIASES] = kept
    entry = _table(models, model)
    present = _names(entry, model)
    known = {alias.casefold() for alias in present}
    missing = [alias for alias in aliases if alias.casefold() not in known]
    if missing:
        entry[_ALIASES] = [*present, *missing]
    return tomlkit.dumps(document)


def _table(parent: dict[str, Any], name: str, *, is_super: bool = False) -> dict[str, Any]:
    """The table of this name, added if missing. is_super: a new one has no header of its own."""
    if name not in parent:
        parent[name] = tomlkit.table(is_super_table=is_super)
    if not isinstance(parent[name], dict):
        raise ValueError(f"{name} is not a table")
    return cast(dict[str, Any], parent[name])


def _names(entry: dict[str, Any], model: str) -> list[str]:
    value = entry.get(_ALIASES, [])
    if not isinstance(value, list) or not all(isinstance(alias, str) for alias in cast(list[Any], value)):
        raise ValueError(f"the aliases of {model} are not a list of texts")
    return [str(alias) for alias in cast(list[str], value)]

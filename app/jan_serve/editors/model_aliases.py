"""Gives a model further names in jan-serve's own configuration file; comments and all else stay (tomlkit)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import tomlkit

from jan_serve.editors.toml_file import parsed

_MODELS: Final = "models"
_ALIASES: Final = "aliases"


def set_aliases(text: str, model: str, aliases: Sequence[str]) -> str:
    """Add the aliases to the model's table, and take them from the tables of others. Raises ValueError."""
    document = parsed(text)
    table = cast(dict[str, Any], document)
    if _MODELS not in table:
        table[_MODELS] = tomlkit.table(is_super_table=True)
    models = _table(table[_MODELS], _MODELS)
    wanted = {alias.casefold() for alias in aliases}
    for name in list(models):
        if name != model:
            entry = _table(models[name], name)
            others = _names(entry, name)
            kept = [alias for alias in others if alias.casefold() not in wanted]
            if kept != others:
                entry[_ALIASES] = kept
    if model not in models:
        models[model] = tomlkit.table()
    entry = _table(models[model], model)
    present = _names(entry, model)
    known = {alias.casefold() for alias in present}
    missing = [alias for alias in aliases if alias.casefold() not in known]
    if missing:
        entry[_ALIASES] = [*present, *missing]
    return tomlkit.dumps(document)


def _table(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} is not a table")
    return cast(dict[str, Any], value)


def _names(entry: dict[str, Any], model: str) -> list[str]:
    value = entry.get(_ALIASES, [])
    if not isinstance(value, list) or not all(isinstance(alias, str) for alias in cast(list[Any], value)):
        raise ValueError(f"the aliases of {model} are not a list of texts")
    return [str(alias) for alias in cast(list[str], value)]

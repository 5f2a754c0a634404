"""Cline's providers.json: sets its only OpenAI-compatible provider, for its extensions and its command line.

Source: docs.cline.bot, Config; fields from the schema of @cline/core 0.0.86.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from jan_serve.editors.facts import NO_KEY
from jan_serve.editors.jsonc import read_value, set_value

OPENAI_COMPATIBLE: Final = "openai-compatible"
_NEW_FILE: Final = f'{{\n  "version": 1,\n  "lastUsedProvider": "{OPENAI_COMPATIBLE}"\n}}\n'
_VERSION: Final = 1
# The schema requires a time; Cline writes the real one when it uses the provider.
_NO_TIME: Final = "1970-01-01T00:00:00.000Z"


def set_provider(text: str, settings: Mapping[str, Any]) -> str:
    """Set the provider's settings. Its key and other fields are kept if the address does not change.

    Raises ValueError for any other file, and if a key for another address would be lost.
    """
    text = text if text.strip() else _NEW_FILE
    document = _mapping(read_value(text))
    if document.get("version") != _VERSION:
        raise ValueError(f"it is not of version {_VERSION}")
    entry = _mapping(_mapping(document.get("providers")).get(OPENAI_COMPATIBLE))
    old = _mapping(entry.get("settings"))
    if old.get("baseUrl") != settings["baseUrl"]:
        if old.get("apiKey") not in (None, "", NO_KEY):
            raise ValueError(
                f"its OpenAI-compatible provider, of which Cline has one, has a key for {old.get('baseUrl')}"
            )
        old = {}
    new = {**old, **settings}
    if new == old:
        return text
    value = {"settings": new, "updatedAt": entry.get("updatedAt", _NO_TIME), "tokenSource": "manual"}
    return set_value(text, ("providers", OPENAI_COMPATIBLE), value)


def _mapping(value: Any) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}

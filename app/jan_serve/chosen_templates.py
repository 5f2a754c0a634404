"""Chat templates that the settings choose for models: reads their files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from jan_serve.errors import SettingsError
from jan_serve.generation.template_choice import TemplateOverride

MAX_FILE_BYTES: Final = 1 << 20


def chosen_templates(settings: Iterable[str]) -> dict[str, TemplateOverride]:
    """By model, from `MODEL=FILE` and `MODEL=NAME`. What is no file is taken for a name. Raises SettingsError."""
    chosen: dict[str, TemplateOverride] = {}
    for setting in settings:
        model, _, value = setting.partition("=")
        if not model or not value:
            raise SettingsError(f"chat_template: {setting!r} is not MODEL=FILE or MODEL=NAME")
        chosen[model] = _override(value)
    return chosen


def _override(value: str) -> TemplateOverride:
    path = Path(value).expanduser()
    if not path.is_file():
        if "/" in value or path.suffix:
            raise SettingsError(f"chat_template: there is no file {value}")
        return TemplateOverride(value)
    try:
        data = path.read_bytes()
        if len(data) > MAX_FILE_BYTES:
            raise SettingsError(f"chat_template: {value} is longer than {MAX_FILE_BYTES} bytes")
        return TemplateOverride(path.name, data.decode("utf-8"))
    except OSError as error:
        raise SettingsError(f"chat_template: {value} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"chat_template: {value} is not UTF-8 at byte {error.start}") from None

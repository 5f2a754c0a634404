"""The version of the configuration file, and the way from older ones. The file is rewritten only when asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError

from jan_serve.errors import SettingsError
from jan_serve.store.files.atomic_file import write_atomically
from jan_serve.store.versions import LaterVersion, Steps, latest, upgrade

VERSION_KEY: Final = "config_version"

CONFIG_STEPS: Steps = {}
"""From version 1 on. A step must work on plain dictionaries and on tomlkit's documents: rename and replace keys."""


def config_version() -> int:
    """The version that this jan-serve writes."""
    return latest(CONFIG_STEPS)


def upgraded(values: dict[str, Any], path: Path) -> tuple[dict[str, Any], int]:
    """The values of the file in the present version, without the version, and the one that it has.

    Raises SettingsError for a later one.
    """
    content = dict(values)
    version = _upgrade(content, path)
    content.pop(VERSION_KEY, None)
    return content, version


def migrate(path: Path) -> Path | None:
    """Rewrite the file in the present version, comments kept; the value is the copy of the old one.

    None where it is of the present version. A link stays a link; the copy lies beside the file behind it, and has the
    same permissions. At any moment the file is the old or the new one, whole. Raises SettingsError, OSError.
    """
    path = path.resolve()
    raw = path.read_bytes()
    try:
        document = tomlkit.parse(raw.decode("utf-8"))
    except (TOMLKitError, ValueError) as error:
        raise SettingsError(f"{path}: {error}") from None
    except RecursionError:
        raise SettingsError(f"{path}: a value is nested too deeply") from None
    version = _upgrade(document, path)
    if version == config_version():
        return None
    backup = path.with_name(f"{path.name}.v{version}")
    mode = path.stat().st_mode
    for target, content in ((backup, raw), (path, tomlkit.dumps(document).encode())):
        write_atomically(target, content, mode=mode)
    return backup


def _upgrade(content: Any, path: Path) -> int:
    try:
        return upgrade(content, VERSION_KEY, CONFIG_STEPS)
    except LaterVersion as later:
        raise SettingsError(
            f"{path}: {VERSION_KEY} is {later.version}, written for a later jan-serve; this one knows {later.known}"
        ) from None
    except ValueError as error:
        raise SettingsError(f"{path}: {error}") from None

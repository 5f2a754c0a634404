"""The version of the configuration file, and its upgrade. Only `migrate` rewrites the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from jan_serve.errors import SettingsError
from jan_serve.store.files.atomic_file import write_atomically
from jan_serve.store.versions import LaterVersion, Steps, latest, upgrade

VERSION_KEY: Final = "config_version"

CONFIG_STEPS: Steps = {}
"""From version 1 on. A step must work on plain dictionaries and on tomlkit's documents: rename and replace keys."""


def config_version() -> int:
    """The version this jan-serve writes."""
    return latest(CONFIG_STEPS)


def upgraded(values: dict[str, Any], path: Path) -> tuple[dict[str, Any], int]:
    """The values in the current version, without the version key, and the file's version.

    Raises SettingsError for a later version.
    """
    content = dict(values)
    version = _upgrade(content, path)
    content.pop(VERSION_KEY, None)
    return content, version


def migrate(path: Path) -> Path | None:
    """Rewrite the file in the current version, keeping comments; returns the backup of the old file.

    None if the version is current. Follows links; the backup lies beside the target, with the same permissions. The
    file is replaced atomically. Raises SettingsError, OSError.
    """
    # Slow to import, and only this command needs them.
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

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

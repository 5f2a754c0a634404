"""Chat templates from files, which may change while the server runs."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Final

from jan_serve.errors import SettingsError
from jan_serve.generation.template_choice import TemplateOverride
from jan_serve.store.files.exhaustion import raise_if_exhausted
from jan_serve.store.files.file_stamp import file_stamp

logger = logging.getLogger(__name__)

MAX_FILE_BYTES: Final = 1 << 20


class TemplateFiles:
    """Reloads changed files. If that fails, it logs the error and keeps the previous text."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[tuple[int, int] | None, TemplateOverride]] = {}
        self._lock = threading.Lock()

    def get(self, value: str) -> TemplateOverride:
        """value: an absolute path or a name. Raises SettingsError if the file was never readable."""
        path = Path(value)
        if not path.is_absolute():
            return TemplateOverride(value)
        stamp = file_stamp(path)
        with self._lock:
            known = self._read.get(value)
            if known is not None and known[0] == stamp:
                return known[1]
            try:
                template = read_template(path)
            except SettingsError as error:
                if known is None:
                    raise
                logger.error("the chat template is unchanged: %s", error)
                template = known[1]
            self._read[value] = (stamp, template)
            return template


def read_template(path: Path) -> TemplateOverride:
    """Blocks on the disk. Raises SettingsError, Unavailable."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise SettingsError(f"template: {path} is longer than {MAX_FILE_BYTES} bytes")
        return TemplateOverride(path.name, data.decode("utf-8"))
    except OSError as error:
        raise_if_exhausted(error)
        raise SettingsError(f"template: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"template: {path} is not UTF-8 at byte {error.start}") from None

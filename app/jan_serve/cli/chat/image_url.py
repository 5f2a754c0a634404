"""Images of a chat in the terminal: files, read and checked before they are sent."""

from __future__ import annotations

import base64
from pathlib import Path

from jan_serve.cli.errors import WRONG_USE, CommandError
from jan_serve.errors import InvalidImage
from jan_serve.image_files.header import checked_header
from jan_serve.image_files.limits import MAX_FILE_BYTES
from jan_serve.store.paths import user_path


def image_url(path: Path) -> str:
    """A data URL of the file. Raises CommandError."""
    try:
        with user_path(path).open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        header = checked_header(data)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}", status=WRONG_USE) from None
    except InvalidImage as error:
        raise CommandError(f"{path}: {error.message}", status=WRONG_USE) from None
    return f"data:image/{header.format.lower()};base64,{base64.b64encode(data).decode()}"

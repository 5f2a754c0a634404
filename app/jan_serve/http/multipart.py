"""Reads forms with files (multipart/form-data, RFC 7578) from a body that is in memory. Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from jan_serve.errors import InvalidRequest

_MAX_FIELDS: Final = 100
_BOUNDARY: Final = re.compile(
    r'multipart/form-data\s*;.*?\bboundary=(?:"([^"\r\n]{1,70})"|([^\s;"]{1,70}))', re.I
)
_PARAMETER: Final = re.compile(rb';\s*([^\s;=]+)=(?:"([^"]*)"|([^\s;"]+))')


class FormField(NamedTuple):
    name: str
    data: bytes
    filename: str = ""

    def text(self) -> str:
        """Raises InvalidRequest for bytes that are not UTF-8."""
        try:
            return self.data.decode()
        except UnicodeDecodeError:
            raise InvalidRequest(f"{self.name}: not text in UTF-8", param=self.name) from None


def form_fields(content_type: str, body: bytes) -> list[FormField]:
    """The fields in order. Raises InvalidRequest for what is no such form."""
    found = _BOUNDARY.match(content_type)
    if found is None:
        raise InvalidRequest("The body must be a form with a file (multipart/form-data with a boundary).")
    delimiter = b"--" + (found[1] or found[2]).encode("latin-1", "replace")
    # The first delimiter may stand at the start; each other one follows a line end, which belongs to it.
    parts = (b"\r\n" + body).split(b"\r\n" + delimiter, _MAX_FIELDS + 1)
    if len(parts) < 2 or not parts[-1].startswith(b"--"):
        cut = f"The form is cut off, or has more than {_MAX_FIELDS} fields."
        raise InvalidRequest(cut if len(parts) > 1 else "The form has no fields.")
    return [_field(part) for part in parts[1:-1]]


def _field(part: bytes) -> FormField:
    """A part from behind its delimiter to its end."""
    head, separator, data = part.partition(b"\r\n\r\n")
    disposition = next(
        (line for line in head.split(b"\r\n") if line.lower().startswith(b"content-disposition:")), b""
    )
    parameters = {found[1].lower(): found[2] or found[3] or b"" for found in _PARAMETER.finditer(disposition)}
    if not separator or b"name" not in parameters:
        raise InvalidRequest("A part of the form has no name.")
    filename = parameters.get(b"filename", b"").decode("utf-8", "replace")
    return FormField(parameters[b"name"].decode("utf-8", "replace"), data, filename)

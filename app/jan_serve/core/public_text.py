"""Texts for clients: without what only the owner of the machine may read."""

from __future__ import annotations

import re

_ABSOLUTE_PATH = re.compile(r"(?:[A-Za-z]:)?(?:[/\\][^\s/\\:'\",;()<>]+)+[/\\]([^\s/\\:'\",;()<>]+)")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


def public_text(text: str) -> str:
    """The text with the names of files in place of their paths, and without addresses in memory."""
    return _ADDRESS.sub("<address>", _ABSOLUTE_PATH.sub(r"\1", text)).strip()

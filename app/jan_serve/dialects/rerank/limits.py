"""Caps of a request, beside the size of its body."""

from __future__ import annotations

from typing import Final

MAX_DOCUMENTS: Final = 1000

"""Paths of the web page, which are public. Apart from its routes: guards need them, and no web framework."""

from __future__ import annotations

from typing import Final

PAGE_PATH: Final = "/"
ASSETS_PATH: Final = "/assets/"


def is_page_path(method: str, path: str) -> bool:
    """Whether a request is for the page or an asset."""
    return method in ("GET", "HEAD") and (path == PAGE_PATH or path.startswith(ASSETS_PATH))

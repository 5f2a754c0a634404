"""Origins of desktop applications that call local servers from their own pages.

Their schemes exist in these applications alone: no web site can have such an origin. Browser extensions are not among
them, because any extension in a browser could be the caller: name one with --allowed-origin.
"""

from __future__ import annotations

import re
from typing import Final

APP_ORIGINS: Final[dict[str, str]] = {
    "Tauri on macOS and Linux": r"tauri://localhost",
    "Tauri on Windows and Android": r"https?://tauri\.localhost",
    "Obsidian": r"app://obsidian\.md",
    "Obsidian on phones": r"capacitor://localhost",
    "VS Code, panels of extensions": r"vscode-webview://[a-z0-9-]{1,64}",
    "VS Code itself": r"vscode-file://vscode-app",
}
"""Patterns of whole origins in lower case, by application."""

_ANY: Final = re.compile("|".join(f"(?:{pattern})" for pattern in APP_ORIGINS.values()))


def is_app_origin(origin: str) -> bool:
    """origin: in lower case."""
    return _ANY.fullmatch(origin) is not None

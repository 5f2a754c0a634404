"""Caps of a request, beside the size of its body."""

from __future__ import annotations

from typing import Final

MAX_QUESTIONS: Final = 256
MAX_OPTIONS: Final = 255
MAX_ASKED: Final = 1024
"""Questions of a request, where each option of a question of the type `several` is one."""
MAX_LEVELS: Final = 10
MAX_EXAMPLES: Final = 1000

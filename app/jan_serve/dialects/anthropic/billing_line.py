"""The billing line at the start of Claude Code's system prompts: ``x-anthropic-billing-header: …``.

Its digits change with every request. At the start of a prompt it would make every cached prefix useless.
"""

from __future__ import annotations

import re
from typing import Final

_LINE: Final = re.compile(
    r"\s*x-anthropic-billing-header:(?:[ \t]+[\w-]+=[^;\s]*;?)*(?:[ \t]*\n+|[ \t]*\Z)?", re.IGNORECASE
)
"""Its fields are `name=value;`. What follows the last one on the same line is the prompt."""


def cut_billing_line(text: str) -> str:
    """The text of a system prompt without the line."""
    match = _LINE.match(text)
    return text if match is None else text[match.end() :]

"""How much a request lets the model think, for dialects that name an effort."""

from __future__ import annotations

from typing import Final

REASONING_BUDGETS: Final = {"none": 0, "minimal": 256, "low": 1_024, "medium": 8_192}
"""Maximum tokens of thought by effort; an effort without an entry has no limit."""

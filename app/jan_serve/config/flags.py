"""The command-line form of settings."""

from __future__ import annotations

from typing import Final

import msgspec

MODEL_PANEL: Final = "Model"
MEMORY_PANEL: Final = "Memory and speed"


class Flag(msgspec.Struct, frozen=True):
    """Command-line form of a field: its panel of the help, and its name if it differs from the field's.

    also: another program's variable that sets it; ours takes precedence.
    """

    panel: str
    name: str | None = None
    metavar: str | None = None
    also: str | None = None

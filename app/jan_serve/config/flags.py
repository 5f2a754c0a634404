"""Declaration of a setting: its default, documentation and form on the command line."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from pydantic import Field
from pydantic.fields import FieldInfo

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


def setting(default: Any, panel: str, description: str, **form: str) -> Any:
    """A field of a model of settings. default: `...` for a value that a validator derives. form: see Flag."""
    return Field(default, description=description, json_schema_extra={"panel": panel, **form})


def flag_of(info: FieldInfo) -> Flag:
    """The command-line form of a field that `setting` has declared."""
    return msgspec.convert(info.json_schema_extra, Flag)

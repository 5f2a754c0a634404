"""Durations in requests: a number of seconds, or a text in the form of Go's time.ParseDuration ("5m", "1h30m").

Ollama's `keep_alive` has this form: https://github.com/ollama/ollama/blob/main/docs/api.md
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import Field

from jan_serve.errors import InvalidRequest

_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"(\d{1,15}(?:\.\d{0,9})?|\.\d{1,9})(ns|us|µs|μs|ms|s|m|h)")
_DURATION: Final = re.compile(rf"[+-]?(?:{_PART.pattern})+\Z")
_NUMBER: Final = re.compile(r"[+-]?\d{1,15}(?:\.\d{1,9})?\Z")
_MAX_CHARS: Final = 64

KeepAlive = Annotated[
    int | float | str | None,
    Field(
        description="How long the model stays loaded after this request: seconds, or a text such as `10m`. 0 unloads it"
        " at once, a negative value keeps it."
    ),
]


def ttl_s(value: int | float | str | None, field: str = "keep_alive") -> float | None:
    """Seconds; -1 is for ever. None if absent. Raises InvalidRequest."""
    if value is None:
        return None
    seconds = _seconds(value) if isinstance(value, str) else _as_float(value)
    if seconds is None or seconds != seconds or seconds in (float("inf"), float("-inf")):
        raise InvalidRequest(
            f"{field}: must be a number of seconds or a duration such as `10m` or `1h30m`", param=field
        )
    return -1.0 if seconds < 0 else seconds


def _as_float(value: int | float) -> float | None:
    try:
        return float(value)
    except OverflowError:  # JSON has integers of any size
        return None


def _seconds(text: str) -> float | None:
    text = text.strip()
    if len(text) > _MAX_CHARS:
        return None
    if _NUMBER.match(text):
        return float(text)
    if not _DURATION.match(text):
        return None
    total = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    return -total if text.startswith("-") else total

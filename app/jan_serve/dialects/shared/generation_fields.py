"""Fields of generation requests that dialects share: ranges, stops, repetition, how long a model stays. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final

from pydantic import BaseModel, Field

from jan_serve.core.request import ESCAPES, RepetitionDetection
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.wire_types import Between, Int, WireModel, wrong
from jan_serve.errors import InvalidRequest


def explicit_fields(body: BaseModel, **names: str) -> frozenset[str]:
    """Fields that the body sets to a value other than null, by their names in SamplingParams and StopConditions.

    names: those names where they differ from the body's.
    """
    present = (name for name in body.model_fields_set if getattr(body, name) is not None)
    return frozenset(names.get(name, name) for name in present)


def require(field: str, value: float, low: float, high: float) -> None:
    """Raises InvalidRequest for a value outside the closed range."""
    if not low <= value <= high:
        raise out_of_range(field, value, f"from {low:.10g} to {high:.10g}")


def out_of_range(field: str, value: float, words: str) -> InvalidRequest:
    shown = f", got {value}" if len(str(value)) <= 40 else ""
    return wrong(field, f"must be {words}{shown}")


MAX_STOP_CHARS: Final = 1_024


def stop_texts(
    stop: str | Sequence[str] | None, more: Sequence[str] = (), *, field: str = "stop"
) -> tuple[str, ...]:
    """Without duplicates. Raises InvalidRequest for one that is empty or too long."""
    stops = (*([stop] if isinstance(stop, str) else stop or ()), *more)
    for text in stops:
        if not text:
            raise wrong(field, "an empty text would end every answer at once")
        if len(text) > MAX_STOP_CHARS:
            raise wrong(field, f"a text of {len(text)} characters is too long, the limit is {MAX_STOP_CHARS}")
    return tuple(dict.fromkeys(stops))


REASONING_BUDGETS: Final = {"none": 0, "minimal": 256, "low": 1_024, "medium": 8_192}
"""Maximum tokens of thought by effort; an effort without an entry has no limit."""
_LEAST_COUNT: Final = 2


class RepetitionFields(WireModel):
    """vLLM's detection of a text that repeats its last tokens. Sizes are in tokens."""

    max_pattern_size: Annotated[
        Int, Between(0, limits.MAX_PATTERN), Field(description="Longest pattern; 0 detects none.")
    ] = 0
    min_pattern_size: Annotated[
        Int, Between(0, limits.MAX_PATTERN), Field(description="Shortest pattern; 0 is 1.")
    ] = 0
    min_count: Annotated[Int, Between(0, limits.MAX_PATTERN)] = Field(
        0, description="Patterns in a row that end the answer: 2 or more."
    )
    escape: Annotated[
        bool, Field(description="First forbid the token that would go on with the pattern, a few times.")
    ] = False


def repetition_detection(fields: RepetitionFields | None) -> RepetitionDetection | None:
    """Raises InvalidRequest."""
    if fields is None or fields.max_pattern_size == 0:
        return None
    name = "repetition_detection"
    if fields.min_pattern_size > fields.max_pattern_size:
        raise wrong(name, "min_pattern_size is above max_pattern_size")
    if fields.min_count < _LEAST_COUNT:
        raise InvalidRequest(f"{name}.min_count: must be {_LEAST_COUNT} or more", param=name)
    return RepetitionDetection(
        max_pattern_size=fields.max_pattern_size,
        min_pattern_size=max(1, fields.min_pattern_size),
        min_count=fields.min_count,
        escapes=ESCAPES if fields.escape else 0,
    )


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
    """Seconds, of a number or of a text in the form of Go's time.ParseDuration; -1 is for ever. None if absent.

    Raises InvalidRequest.
    """
    if value is None:
        return None
    try:
        seconds = _seconds(value) if isinstance(value, str) else float(value)
    except OverflowError:  # JSON has integers of any size
        seconds = None
    if seconds is None or seconds != seconds or seconds in (float("inf"), float("-inf")):
        raise wrong(field, "must be a number of seconds or a duration such as `10m` or `1h30m`")
    return -1.0 if seconds < 0 else seconds


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

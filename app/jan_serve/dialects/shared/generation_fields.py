"""Fields of generation requests that several dialects share:

which ones a request sets, ranges, stop strings, efforts of reasoning, repeated texts. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from pydantic import BaseModel, Field

from jan_serve.core.sampling import ESCAPES, RepetitionDetection
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.wire_types import Between, Int, WireModel
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
    return InvalidRequest(f"{field}: must be {words}{shown}", param=field)


MAX_STOP_CHARS: Final = 1_024


def stop_texts(
    stop: str | Sequence[str] | None, more: Sequence[str] = (), *, field: str = "stop"
) -> tuple[str, ...]:
    """Without duplicates. Raises InvalidRequest for one that is empty or too long."""
    stops = (*([stop] if isinstance(stop, str) else stop or ()), *more)
    for text in stops:
        if not text:
            raise InvalidRequest(f"{field}: an empty text would end every answer at once", param=field)
        if len(text) > MAX_STOP_CHARS:
            raise InvalidRequest(
                f"{field}: a text of {len(text)} characters is too long, the limit is {MAX_STOP_CHARS}",
                param=field,
            )
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
    min_count: Annotated[
        Int,
        Between(0, limits.MAX_PATTERN),
        Field(description="Patterns in a row that end the answer: 2 or more."),
    ] = 0
    escape: Annotated[
        bool, Field(description="First forbid the token that would go on with the pattern, a few times.")
    ] = False


def repetition_detection(fields: RepetitionFields | None) -> RepetitionDetection | None:
    """Raises InvalidRequest."""
    if fields is None or fields.max_pattern_size == 0:
        return None
    name = "repetition_detection"
    if fields.min_pattern_size > fields.max_pattern_size:
        raise InvalidRequest(f"{name}: min_pattern_size is above max_pattern_size", param=name)
    if fields.min_count < _LEAST_COUNT:
        raise InvalidRequest(f"{name}.min_count: must be {_LEAST_COUNT} or more", param=name)
    return RepetitionDetection(
        max_pattern_size=fields.max_pattern_size,
        min_pattern_size=max(1, fields.min_pattern_size),
        min_count=fields.min_count,
        escapes=ESCAPES if fields.escape else 0,
    )

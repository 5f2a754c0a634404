"""The field `repetition_detection`, in the form of vLLM. Pure."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from jan_serve.core.sampling import ESCAPES, RepetitionDetection
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.wire_types import Between, Int, WireModel
from jan_serve.errors import InvalidRequest

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

"""Fields of generation requests that several dialects share:

which ones a request sets, ranges, stop strings, efforts of reasoning. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import BaseModel

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

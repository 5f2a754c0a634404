"""Stop strings, for every dialect but TGI. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from jan_serve.errors import InvalidRequest

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

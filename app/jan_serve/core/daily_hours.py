"""A part of each day, such as `22:00-06:00`."""

from __future__ import annotations

import re
from datetime import time
from typing import Final, NamedTuple

_FORM: Final = re.compile(r"([01]?\d|2[0-3])(?::([0-5]\d))?-([01]?\d|2[0-3])(?::([0-5]\d))?")


class DailyHours(NamedTuple):
    """Hours from `start` to before `end`, over midnight if that is earlier. The whole day if both are the same."""

    start: time
    end: time

    @classmethod
    def parse(cls, text: str) -> DailyHours:
        """Raises ValueError."""
        found = _FORM.fullmatch(text.replace(" ", ""))
        if found is None:
            raise ValueError(f"{text!r} is no part of a day such as 22:00-06:00")
        hours = [int(part or 0) for part in found.groups()]
        return cls(time(hours[0], hours[1]), time(hours[2], hours[3]))

    def has(self, moment: time) -> bool:
        if self.start < self.end:
            return self.start <= moment < self.end
        return moment >= self.start or moment < self.end

"""Finds where the arguments of a call begin in a text of calls."""

from __future__ import annotations

import re
from typing import Final

from jan_serve.core.uniqueness import CallLocations

_LONGEST_MARK: Final = 256
"""Bytes around a name."""


class CallSearch:
    """begun: text before the answer. longest: bytes before a brace that matter."""

    def __init__(self, calls: CallLocations) -> None:
        self._roots = calls.roots
        names = "|".join(map(re.escape, calls.roots))
        self._call = re.compile(f"{calls.before}({names}){calls.between}\\Z".encode(), re.DOTALL)
        self.begun = calls.begun.encode()
        self.longest = _LONGEST_MARK + max((len(name.encode()) for name in calls.roots), default=0)

    def location(self, text: bytes) -> int | None:
        """The location of the arguments that a brace after `text` begins; None if it begins none."""
        found = self._call.search(text)
        return None if found is None else self._roots[found[1].decode()]

"""The nodes that a request was at, and whether it may go to another one. Until its answer has begun, that is."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import Final

from jan_serve.fleet.assignment import Assignment
from jan_serve.fleet.fleet import Fleet
from jan_serve.fleet.node import Node, Role
from jan_serve.fleet.retry_budget import RetryBudget

MAX_REACHED: Final = 3
"""Nodes that get the request: it may be what ends them."""
MAX_ASKED: Final = 16
"""With those where nobody took the connection, which cost nothing but time."""
PATIENCE_S: Final = 60.0
_PATIENCE: Final = 5.0
"""Times what is expected."""
_LOOK_S: Final = 5.0


class Ending(Enum):
    """UNREACHED: nobody took the connection. RESET: it ended. SILENT: it gives no sign of life. REFUSED: the node
    says that it cannot now. FINAL: all else, which another node would not do better."""

    UNREACHED = auto()
    RESET = auto()
    SILENT = auto()
    REFUSED = auto()
    FINAL = auto()


class Attempts:
    """Nodes that one request has tried. tried: it may not go there either. Times in seconds."""

    def __init__(self, budget: RetryBudget, now: float, tried: Iterable[Node] = ()) -> None:
        self.tried = list(tried)
        self.asked = 0
        self._reached = 0
        self._budget = budget
        budget.count(now)

    def may_go_on(self, ending: Ending, assignment: Assignment, now: float) -> bool:
        """Count an attempt that has ended. The budget is not for connections that nobody took, nor for requests that a
        node had when it ended: these cannot multiply."""
        self.asked += 1
        self._reached += ending is not Ending.UNREACHED
        if ending is Ending.FINAL or self._reached == MAX_REACHED or self.asked == MAX_ASKED:
            return False
        is_free = ending is Ending.UNREACHED or (ending is not Ending.REFUSED and assignment.is_stranded)
        return is_free or self._budget.take(now)

    def patience_s(self, assignment: Assignment, least_s: float = PATIENCE_S) -> float | None:
        """How long its node may give no sign of life; None for the last attempt, which waits to its end."""
        if self._reached == MAX_REACHED - 1:
            return None
        return max(least_s, _PATIENCE * assignment.expected_s) if assignment.is_timed else least_s

    def next_look_s(
        self,
        assignment: Assignment,
        patience_s: float,
        fleet: Fleet,
        model: str | None,
        role: Role,
        now: float,
    ) -> float:
        """When to look again; 0 if the request leaves the silent node, because another one takes it."""
        # In this order the time that is left is exact: now + left reaches it, however little is left.
        look_s = assignment.lived_s + patience_s
        if look_s > now:
            return look_s - now
        return 0.0 if fleet.has_other(model, role, self.tried, now) else _LOOK_S

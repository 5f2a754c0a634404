"""The nodes that a request was at, and whether it may go to another one. Retries are a share of all requests."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import Final

from jan_serve.fleet.assignment import Assignment
from jan_serve.fleet.fleet import Fleet
from jan_serve.fleet.node import Node, Role

BUDGET_WINDOW_S: Final = 10
RETRY_SHARE: Final = 0.2
RETRIES_ALWAYS: Final = 3


class RetryBudget:
    """Counts by the second, over the last ten seconds."""

    def __init__(self) -> None:
        self._second = [-1] * BUDGET_WINDOW_S
        self._requests = [0] * BUDGET_WINDOW_S
        self._retries = [0] * BUDGET_WINDOW_S

    def count(self, now: float) -> None:
        self._requests[self._slot(now)] += 1

    def take(self, now: float) -> bool:
        """Whether one more retry is allowed; it then counts."""
        slot = self._slot(now)
        recent = [index for index, second in enumerate(self._second) if second > int(now) - BUDGET_WINDOW_S]
        requests = sum(self._requests[index] for index in recent)
        if sum(self._retries[index] for index in recent) >= RETRIES_ALWAYS + RETRY_SHARE * requests:
            return False
        self._retries[slot] += 1
        return True

    def _slot(self, now: float) -> int:
        second = int(now)
        slot = second % BUDGET_WINDOW_S
        if self._second[slot] != second:
            self._second[slot], self._requests[slot], self._retries[slot] = second, 0, 0
        return slot


MAX_REACHED: Final = 3
"""Nodes that get the request: it may be what ends them."""
MAX_ASKED: Final = 16
"""Most nodes asked, with those where nobody took the connection, which cost nothing but time."""
PATIENCE_S: Final = 60.0
_PATIENCE: Final = 5.0
"""A node is left after this multiple of the expected time."""
_LOOK_S: Final = 5.0


class Ending(Enum):
    """UNREACHED: nobody took the connection, or the node closes it because it takes no requests. RESET: it ended.
    SILENT: it gives no sign of life. REFUSED: the node says that it cannot now. FINAL: all else, which another node
    would not do better."""

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
        """Count an attempt that has ended. The budget is not for nodes that nobody reached, nor for requests that a
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

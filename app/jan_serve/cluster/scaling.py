"""How many servers the open requests need. Ray's controller runs this: nothing but the standard library."""

from __future__ import annotations

import math
from typing import Any

USED_SHARE = 0.7
"""Share of the slots in use: the rest takes what comes until another server has started."""
OPEN_REQUESTS = "open_requests"
SLOTS = "slots"


def wanted_replicas(open_requests: float, slots: float) -> int:
    return max(1, math.ceil(open_requests / (slots * USED_SHARE)))


def by_open_requests(context: Any) -> tuple[int, dict[str, Any]]:
    """Ray Serve's autoscaling policy. context: its AutoscalingContext, with what `Replica` reports."""
    reported: dict[str, dict[Any, float]] = context.aggregated_metrics or {}
    slots = reported.get(SLOTS, {}).values()
    if not (total := sum(slots)):  # no server has reported yet
        return context.target_num_replicas, {}
    return wanted_replicas(sum(reported.get(OPEN_REQUESTS, {}).values()), total / len(slots)), {}

"""Draws docs/burst.svg: eight clients with prompts of 300 tokens in the simulated engine.

python -m tests.unit.engine.scheduling.draw_burst docs/burst.svg
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.burst_rows import Lane
from benchmarks.lanes import write_lanes
from tests.unit.engine.scheduling.simulation import Mixed, Planned, Policy, Request, simulate


def _lanes(policy: Policy) -> list[Lane]:
    simulate([Request(-100.0, 100, 4)], policy)
    run = simulate([Request(0.0, 300) for _ in range(8)], policy)
    return [Lane(request.arrived, request.times) for request in run.requests]


if __name__ == "__main__":
    write_lanes(Path(sys.argv[1]), {"jan-serve": _lanes(Planned()), "llama-server": _lanes(Mixed())})

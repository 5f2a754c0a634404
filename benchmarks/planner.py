"""The planner of steps beside other policies, simulated: `python -m benchmarks.planner` prints ratios.

benchmarks/results/planner.md has tables of these rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.planner_simulation import (
    ConstantShare,
    Mixed,
    Planned,
    Policy,
    Request,
    Run,
    StepSeconds,
    accelerator,
    arrivals,
    burst,
    simulate,
    two_cores,
    two_vnni_cores,
    warm,
)

MACHINES: dict[str, StepSeconds] = {
    "two cores": two_cores,
    "two cores, VNNI": two_vnni_cores,
    "accelerator": accelerator,
}
OTHERS: dict[str, Callable[[], Policy]] = {
    "mixes all steps": Mixed,
    "constant share 0.5": lambda: ConstantShare(0.5),
    "constant share 0.7": lambda: ConstantShare(0.7),
}
LOADS: dict[str, Callable[[], list[Request]]] = {
    "8 prompts of 300": lambda: burst(8, 300),
    "8 of 300, answers of 300": lambda: burst(8, 300, 300),
    "8 of 1,000": lambda: burst(8, 1000),
    "16 of 100": lambda: burst(16, 100),
    "2,000 arrivals, 60 % load": lambda: arrivals(2_000, seed=3),
}
FIGURES: dict[str, Callable[[Run], float]] = {
    "time for all": lambda run: run.wall_s,
    "first token: median": lambda run: float(np.median(run.firsts)),
    "p95": lambda run: float(np.quantile(run.firsts, 0.95)),
    "last": lambda run: run.firsts[-1],
    "between tokens, p95": lambda run: float(np.quantile(run.gaps, 0.95)),
    "longest pause": lambda run: max(run.gaps),
    "mean end": lambda run: run.mean_end_s,
}


def main() -> None:
    """Print a table for each machine and each other policy: ours over theirs."""
    for machine, seconds_of in MACHINES.items():
        ours = {
            name: simulate(load(), warm(Planned(), seconds_of), seconds_of) for name, load in LOADS.items()
        }
        for other, policy in OTHERS.items():
            print(
                f"\n{machine}; beside a server that {other}" if "mixes" in other else f"\n{machine}; {other}"
            )
            print("| " + " | ".join(["", *FIGURES]) + " |\n" + "|---" * (len(FIGURES) + 1) + "|")
            for name, load in LOADS.items():
                theirs = simulate(load(), policy(), seconds_of)
                ratios = (figure(ours[name]) / figure(theirs) for figure in FIGURES.values())
                print("| " + " | ".join([name, *(f"{ratio:.2f}" for ratio in ratios)]) + " |")


if __name__ == "__main__":
    main()

"""The conformance report: `python -m tests.conformance.report [--every N] [--update] [SUITE ...]`. Runs whole suites
and prints one line for each. `--update` writes the counts that the ratchet test compares with; they may only be
lowered together with the reason."""

from __future__ import annotations

import argparse
import json
import sys
from itertools import pairwise
from pathlib import Path

from tests.conformance.scoring import CRASH, PASS, REFUSED, TIMEOUT, TOO_NARROW, TOO_WIDE, Score, score
from tests.conformance.suites import SHARED, SUITES, VOCABULARY, load_suite

BASELINE = Path(__file__).with_name("baseline.json")
# What the ratchet test runs of each suite: a sample that takes seconds.
BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 20_000)
SAMPLE_EVERY = {"maskbench": 12}


def summary(suite: str, result: Score) -> str:
    """One line on a suite."""
    counts = result.counts()
    total = len(result.outcomes)
    parts = [f"{counts[status]} {status}" for status in (REFUSED, TOO_NARROW, TOO_WIDE, CRASH, TIMEOUT)]
    times = ", ".join(f"p{int(100 * share)} {result.percentile(share):.1f}" for share in (0.5, 0.95, 0.99))
    share = 100 * counts[PASS] / max(total, 1)
    return (
        f"{suite:14} {counts[PASS]} of {total} pass ({share:.1f} %); {', '.join(parts)}; compile ms {times}"
    )


def histogram(result: Score) -> str:
    """How many schemas were compiled within each of these times."""
    times = [outcome.milliseconds for outcome in result.outcomes if outcome.status != REFUSED]
    counts = (
        f"{bound}: {sum(low < ms <= bound for ms in times)}" for low, bound in pairwise((0, *BOUNDS_MS))
    )
    return f"compiled within ms: {', '.join(counts)}; longest {max(times, default=0):.0f}"


def main() -> int:
    """Print the report. Exit status 1 where something invalid was accepted, crashed or hung."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suites", nargs="*", default=SUITES, metavar="SUITE")
    parser.add_argument("--every", type=int, default=1, help="only every N-th case")
    parser.add_argument("--update", action="store_true", help="write the baseline of the ratchet test")
    parser.add_argument("--failures", action="store_true", help="list the cases that do not pass")
    options = parser.parse_args()
    if not SHARED.is_dir():
        sys.stdout.write(f"the reference folder {SHARED.name} is not beside the repository: nothing to run\n")
        return 0
    baseline: dict[str, dict[str, int]] = {}
    bad = False
    for suite in options.suites:
        every = SAMPLE_EVERY.get(suite, 1) if options.update else options.every
        result = score(load_suite(suite, every), VOCABULARY)
        sys.stdout.write(f"{summary(suite, result)}\n{histogram(result)}\n")
        counts = result.counts()
        baseline[suite] = {"cases": len(result.outcomes), "every": every, "pass": counts[PASS]}
        bad = bad or bool(counts[TOO_WIDE] + counts[CRASH] + counts[TIMEOUT])
        if options.failures:
            sys.stdout.writelines(f"    {line}\n" for line in result.named(*(set(counts) - {PASS})))
    if options.update:
        BASELINE.write_text(json.dumps(baseline, indent=2) + "\n", encoding="utf-8")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())

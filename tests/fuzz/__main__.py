"""`python -m tests.fuzz [TARGET ...] [--minutes M] [--seed N] [--guided]`: damaged inputs at what strangers reach.

Each finding is written to a file of build/fuzz, and printed with its seed; the exit status is 1 if there is one.
--guided: by `tests.fuzz.guided`. Inputs that reached new code stay in build/fuzz/corpus for the next run.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import subprocess
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.fuzz.judging import Finding
from tests.fuzz.targets import GUIDED, TARGETS

_FOLDER = Path("build/fuzz")
_SHOWN_FINDINGS = 20


async def fuzz(
    name: str, seconds: float, seed: int, most: int | None = None
) -> tuple[Counter[str], list[Finding]]:
    """Outcomes by name, and what was found. most: inputs."""
    outcomes: Counter[str] = Counter()
    findings: list[Finding] = []
    end = time.monotonic() + seconds
    async with TARGETS[name]() as one:
        number = 0
        while time.monotonic() < end and (most is None or number < most) and len(findings) < _SHOWN_FINDINGS:
            number += 1
            try:
                outcomes[await one(random.Random(f"{seed}-{number}"))] += 1
            except Finding as finding:
                finding.seed = f"{seed}-{number}"
                findings.append(finding)
    return outcomes, findings


def guided(name: str, seconds: float, seed: int) -> bool:
    """True if nothing was found."""
    corpus = _FOLDER / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    options = (f"-max_total_time={seconds:.0f}", f"-seed={seed}", f"-artifact_prefix={_FOLDER}/{name}-")
    run = subprocess.run([sys.executable, "-m", "tests.fuzz.guided", name, *options, corpus], check=False)
    return run.returncode == 0


def main() -> int:
    command = argparse.ArgumentParser(prog="python -m tests.fuzz")
    command.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    command.add_argument("--minutes", type=float, default=1.0, help="for each target")
    command.add_argument("--seed", type=int, default=random.randrange(10**6))
    command.add_argument("--guided", action="store_true", help=f"by coverage: {', '.join(GUIDED)}")
    options = command.parse_args()
    allowed = GUIDED if options.guided else TARGETS
    if unknown := [name for name in options.targets if name not in allowed]:
        command.error(f"{', '.join(unknown)}: not one of {', '.join(allowed)}")
    logging.getLogger("jan_serve").addHandler(logging.NullHandler())  # millions of remarks about damage
    failed = False
    for name in options.targets or allowed:
        if options.guided:
            failed |= not guided(name, options.minutes * 60, options.seed)
            continue
        outcomes, findings = asyncio.run(fuzz(name, options.minutes * 60, options.seed))
        shown = ", ".join(f"{outcome} {count}" for outcome, count in outcomes.most_common(8))
        print(f"{name}, seed {options.seed}: {outcomes.total()} inputs: {shown}", flush=True)
        for finding in findings:
            failed = True
            _FOLDER.mkdir(parents=True, exist_ok=True)
            path = _FOLDER / f"{name}-{finding.seed}"
            path.write_bytes(finding.input)
            print(f"  FOUND {finding} (seed {finding.seed}, {path})", flush=True)
            if finding.__cause__ is not None:
                traceback.print_exception(finding.__cause__, limit=-6)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

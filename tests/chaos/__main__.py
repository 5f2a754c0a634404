"""`python -m tests.chaos [--seed N] [--minutes M] [--clients N] [--fault TEXT]`: a server among all kinds of faults.

Prints each fault and the report; the exit status is 1 if something was found. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import tempfile
from pathlib import Path

from tests.chaos.faults import FAULTS
from tests.chaos.run import chaos


def main() -> int:
    command = argparse.ArgumentParser(prog="python -m tests.chaos")
    command.add_argument("--seed", type=int, default=random.randrange(10**6))
    command.add_argument("--minutes", type=float, default=10.0)
    command.add_argument("--clients", type=int, default=24)
    command.add_argument(
        "--fault", action="append", help="only faults whose name has this in it; `none` is none"
    )
    command.add_argument("--keep", type=Path, help="a folder, not there yet, that keeps all files of the run")
    options = command.parse_args()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it, and the server would inherit that
    faults = [
        entry
        for entry in FAULTS
        if options.fault is None or any(word in entry.name for word in options.fault)
    ]
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        report = asyncio.run(
            chaos(
                options.keep or Path(folder) / "run",
                options.seed,
                options.minutes * 60,
                options.clients,
                faults,
                lambda text: print(text, flush=True),
            )
        )
    print(report)
    return int(bool(report.findings))


if __name__ == "__main__":
    sys.exit(main())

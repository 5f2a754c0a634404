"""Runs the published suites against a server with the built-in model, and writes docs/compatibility.md.

Needs the environment of the clients (scripts/install-clients).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.clients.suites import PYTHON, SUITES, Differs, Outcome, differs, run_suite  # noqa: E402
from tests.support.served import serving  # noqa: E402

INTRODUCTION = """<!-- Written by scripts/compatibility.py from a run. Run it again rather than change this page. -->

# Compatibility

Suites that others publish for servers like this one, run against jan-serve with its built-in model. That has 3.3
million parameters: tests that want a model that understands fail with it. `make test-clients` runs the suites, and
allows no failure but these.
"""


def versions(packages: tuple[str, ...]) -> str:
    """The installed versions, for people."""
    code = (
        "import sys, importlib.metadata as m; print(*(f'{p} {m.version(p)}' for p in sys.argv[1:]), sep=', ')"
    )
    return subprocess.run(
        [PYTHON, "-c", code, *packages], check=True, capture_output=True, text=True
    ).stdout.strip()


def section(suite: Differs, outcome: Outcome) -> list[str]:
    unknown = outcome.failed - suite.expected()
    if unknown:
        raise SystemExit(f"{suite.title}: no reason is given for {sorted(unknown)}\n{outcome.output}")
    lines = ["", f"## {suite.title}", "", f"{versions(suite.packages)}.", ""]
    lines += ["| ran | passed | differ | skipped by the suite |", "|---|---|---|---|"]
    n_ran = len(outcome.passed) + len(outcome.failed)
    lines.append(f"| {n_ran} | {len(outcome.passed)} | {len(outcome.failed)} | {len(outcome.skipped)} |")
    lines += ["", "| why | tests |", "|---|---|"]
    for reason, tests in suite.fails.items():
        found = [f"`{test}`" for test in tests if test in outcome.failed]
        if found:
            lines.append(f"| {reason} | {', '.join(found)} |")
    return lines


def main() -> None:
    lines = [INTRODUCTION.rstrip()]
    with TemporaryDirectory() as folder, serving(Path(folder), "--port", "0") as server:
        for name in SUITES:
            lines += section(differs()[name], run_suite(name, server.url()))
    (ROOT / "docs" / "compatibility.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

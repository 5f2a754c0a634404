"""Runs the published suites against a server with the built-in model, and writes docs/compatibility.md.

`scripts/compatibility.py [SUITE ...] [--llama-cpp FOLDER]`: the suites that are named, or all; a section of the page
whose suite does not run stays as it is. FOLDER has llama.cpp's tests of its server (tools/server/tests of its source).
Needs the environment of the clients (`make test-clients` installs it).
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.clients.suites import (  # noqa: E402
    LLAMA_CPP,
    PYTHON,
    SUITES,
    Differs,
    Outcome,
    differs,
    run_llama_cpp,
    run_suite,
)
from tests.support.servers.served import serving  # noqa: E402

PAGE = ROOT / "docs" / "compatibility.md"
INTRODUCTION = """<!-- Written by scripts/compatibility.py from a run. Run it again rather than change this page. -->

# Compatibility

Suites that others publish for servers like this one, run against jan-serve with its built-in model. That has 3.3
million parameters: tests that want a model that understands fail with it. Where others publish no suite that runs here,
the tests are written anew from what they describe.

`make test-clients` installs the clients, runs the suites and allows no failure but these. `scripts/compatibility.py`
writes this page; `scripts/compatibility.py kimi` runs one suite. llama.cpp's tests are run from a copy of its source:
`scripts/compatibility.py llama_cpp --llama-cpp llama.cpp/tools/server/tests`.
"""


def versions(suite: Differs) -> str:
    """The installed versions, for people."""
    code = (
        "import sys, importlib.metadata as m; print(*(f'{p} {m.version(p)}' for p in sys.argv[1:]), sep=', ')"
    )
    python = sys.executable if suite.packages == ("llama-cpp-python",) else PYTHON
    found = subprocess.run([python, "-c", code, *suite.packages], check=True, capture_output=True, text=True)
    wanted = json.loads((ROOT / "tests/clients/node/package.json").read_text())["dependencies"]
    return ", ".join(filter(None, [found.stdout.strip(), *(f"{name} {wanted[name]}" for name in suite.npm)]))


def fails(entry: str, test: str) -> bool:
    return test == entry or (entry.endswith("*") and test.startswith(entry[:-1]))


def section(suite: Differs, outcome: Outcome) -> str:
    reasons = {test: suite.reason(test) for test in outcome.failed}
    unknown = sorted(test for test, reason in reasons.items() if reason is None)
    if unknown:
        raise SystemExit("\n".join([f"{suite.title}: no reason is given for", *unknown, outcome.output]))
    lines = ["", f"## {suite.title}", "", f"{versions(suite)}.", ""]
    lines += ["| ran | passed | differ | skipped by the suite |", "|---|---|---|---|"]
    n_ran = len(outcome.passed) + len(outcome.failed)
    lines.append(f"| {n_ran} | {len(outcome.passed)} | {len(outcome.failed)} | {len(outcome.skipped)} |")
    if reasons:
        lines += ["", "| why | tests | |", "|---|---|---|"]
    for reason, tests in suite.fails.items():
        if count := list(reasons.values()).count(reason):
            shown = [test for test in tests if any(fails(test, each) for each in reasons)]
            named = ", ".join(f"`{test.replace('|', chr(92) + '|')}`" for test in shown)
            lines.append(f"| {reason} | {count} | {named} |")
    for reason, files in suite.left_out.items():
        lines += ["", f"Not run, since {reason}: {', '.join(f'`{file}`' for file in files)}."]
    return "\n".join(lines)


def sections() -> dict[str, str]:
    """The sections of the page as it is, by the name of the suite."""
    parts = re.split(r"\n(?=\n## )", PAGE.read_text(encoding="utf-8").rstrip())[1:]
    names = {suite.title: name for name, suite in differs().items()}
    titled = {part.strip().partition("\n")[0].removeprefix("## "): part for part in parts}
    return {names[title]: part for title, part in titled.items() if title in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", choices=[*SUITES, LLAMA_CPP, []])
    parser.add_argument("--llama-cpp", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    chosen = given.suites or [*SUITES, *([LLAMA_CPP] if given.llama_cpp else [])]
    found = sections()
    with TemporaryDirectory() as folder, serving(Path(folder), "--port", "0") as server:
        for name in chosen:
            outcome = (
                run_llama_cpp(given.llama_cpp.resolve())
                if name == LLAMA_CPP
                else run_suite(name, server.url())
            )
            found[name] = section(differs()[name], outcome)
            page = [INTRODUCTION.rstrip(), *(found[each] for each in sorted(found)), ""]
            PAGE.write_text("\n".join(page), encoding="utf-8")


if __name__ == "__main__":
    main()

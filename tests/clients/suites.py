"""Suites that others publish for servers like this one, run in the environment of the clients.

`suites/*_suite.py` are their tests; `suites/differs.toml` has those that fail by design, or because the model is weak.
`scripts/compatibility.py` makes docs/compatibility.md of them.
"""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from xml.etree import ElementTree

import msgspec

PYTHON: Final = Path(__file__).parents[2] / ".venv-clients" / "bin" / "python"
FOLDER: Final = Path(__file__).with_name("suites")
SUITES: Final = tuple(sorted(path.stem.removesuffix("_suite") for path in FOLDER.glob("*_suite.py")))
_OPTIONS: Final = (
    "-c", os.devnull, "--rootdir", ".", "--noconftest", "-p", "no:cacheprovider", "-p", "no:codspeed",
    "-o", "asyncio_mode=auto",
    "-o", "asyncio_default_fixture_loop_scope=session",
    "-o", "asyncio_default_test_loop_scope=session",
)  # fmt: skip


class Differs(msgspec.Struct, frozen=True):
    """A published suite, and its tests that fail here, by the reason. packages: their versions name the suite's."""

    title: str
    packages: tuple[str, ...]
    fails: dict[str, tuple[str, ...]] = {}

    def expected(self) -> set[str]:
        return {test for tests in self.fails.values() for test in tests}


def differs() -> dict[str, Differs]:
    return msgspec.convert(tomllib.loads((FOLDER / "differs.toml").read_text()), dict[str, Differs])


class Outcome(msgspec.Struct, frozen=True):
    """Names of tests."""

    passed: frozenset[str]
    failed: frozenset[str]
    skipped: frozenset[str]
    output: str


def run_suite(name: str, url: str) -> Outcome:
    """Run a suite against the server. Blocks for up to a minute."""
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        done = subprocess.run(
            [PYTHON, "-m", "pytest", "-q", *_OPTIONS, f"--junitxml={report}", f"{name}_suite.py"],
            cwd=FOLDER,
            env={**os.environ, "JAN_SERVE_URL": url, "LANGSMITH_TRACING": "false", "NO_PROXY": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if not report.exists():
            raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
        found: dict[str, set[str]] = {"passed": set(), "failed": set(), "skipped": set()}
        for case in ElementTree.parse(report).iter("testcase"):
            owner = case.get("classname", "").rpartition(f"{name}_suite")[2].strip(".")
            test = "::".join(filter(None, (owner, case.get("name"))))
            kinds = {child.tag for child in case}
            kind = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
            found[kind].add(test)
    sets = {kind: frozenset(tests) for kind, tests in found.items()}
    return Outcome(**sets, output=done.stdout[-6000:])

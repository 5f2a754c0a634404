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
LLAMA_CPP: Final = "llama_cpp"
"""llama.cpp's tests of its server, which are not kept here: a user names their folder."""

_OPTIONS: Final = (
    "-c", os.devnull, "--rootdir", ".", "--noconftest", "-p", "no:cacheprovider", "-p", "no:codspeed",
    "-o", "asyncio_mode=auto",
    "-o", "asyncio_default_fixture_loop_scope=session",
    "-o", "asyncio_default_test_loop_scope=session",
)  # fmt: skip


class Differs(msgspec.Struct, frozen=True):
    """A published suite, and its tests that fail here, by the reason; `name*` is each test that begins so.

    packages: their versions name the suite's. left_out: files of tests that are not run, by the reason.
    """

    title: str
    packages: tuple[str, ...] = ()
    npm: tuple[str, ...] = ()
    fails: dict[str, tuple[str, ...]] = {}
    left_out: dict[str, tuple[str, ...]] = {}

    def reason(self, test: str) -> str | None:
        """Why the test fails here; None where it is not expected to. A full name wins over the beginning of one."""
        reasons = {each: reason for reason, tests in self.fails.items() for each in tests}
        begun = (reasons[each] for each in reasons if each.endswith("*") and test.startswith(each[:-1]))
        return reasons.get(test) or next(begun, None)


def differs() -> dict[str, Differs]:
    return msgspec.convert(tomllib.loads((FOLDER / "differs.toml").read_text()), dict[str, Differs])


class Outcome(msgspec.Struct, frozen=True):
    """Names of tests."""

    passed: frozenset[str]
    failed: frozenset[str]
    skipped: frozenset[str]
    output: str


def run_suite(name: str, url: str) -> Outcome:
    """Run a suite against the server. Blocks for up to some minutes."""
    return _run(FOLDER, f"{name}_suite", {"JAN_SERVE_URL": url}, f"{name}_suite.py")


def run_llama_cpp(folder: Path) -> Outcome:
    """Run llama.cpp's tests of its server, which start servers of their own. Blocks for minutes."""
    files = {f"unit/{file}.py" for files in differs()[LLAMA_CPP].left_out.values() for file in files}
    return _run(
        folder,
        "unit",
        {"PYTHONPATH": os.pathsep.join(map(str, (folder, FOLDER)))},
        *("-p", "llama_cpp_plugin", "-m", "not slow", "unit"),
        *(f"--ignore={file}" for file in sorted(files)),
    )


def _run(folder: Path, owner: str, variables: dict[str, str], *arguments: str) -> Outcome:
    """owner: the module or package whose tests these are, left out of their names."""
    quiet = {"LANGSMITH_TRACING": "false", "NO_PROXY": "127.0.0.1", "PYTHONDONTWRITEBYTECODE": "1"}
    with TemporaryDirectory() as temporary:
        report = Path(temporary) / "report.xml"
        done = subprocess.run(
            [PYTHON, "-m", "pytest", "-q", *_OPTIONS, f"--junitxml={report}", *arguments],
            cwd=folder,
            env={**os.environ, **quiet, **variables},
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )
        if not report.exists():
            raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
        found: dict[str, set[str]] = {"passed": set(), "failed": set(), "skipped": set()}
        for case in ElementTree.parse(report).iter("testcase"):
            within = case.get("classname", "").rpartition(owner)[2].strip(".")
            test = "::".join(filter(None, (within, case.get("name"))))
            kinds = {child.tag for child in case}
            kind = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
            found[kind].add(test)
    sets = {kind: frozenset(tests) for kind, tests in found.items()}
    return Outcome(**sets, output=done.stdout[-6000:])

"""`python -m scripts.accelerator [prepare]`: see scripts/check-accelerator."""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
import time
from pathlib import Path

from kernels.llama import ROOT
from scripts.accelerator import prepare, steps
from scripts.accelerator.backends import BACKENDS, chosen_backend
from scripts.accelerator.report import failed_steps, markdown, verdict
from scripts.accelerator.steps import Facts
from scripts.installer.commands import say
from scripts.installer.errors import InstallError


def main(arguments: list[str]) -> int:
    """0: all is well; 1: not; 2: wrong arguments, or nothing could be checked."""
    try:
        if arguments[:1] == ["prepare"]:
            options = _prepare_options().parse_args(arguments[1:])
            prepare.prepare(options.folder.resolve(), options.python_version)
            return 0
        options = _options().parse_args(arguments)
        backend = chosen_backend(options.backend)
        check = steps.Check(
            backend=backend,
            work=(options.work or ROOT / "build" / "accelerator" / backend.name).resolve(),
            prepared=options.prepared and options.prepared.resolve(),
            model=options.model and options.model.resolve(),
            tests=tuple(options.tests or steps.TESTS),
            rows=tuple(options.row or steps.ROWS),
            rounds=options.rounds,
        )
        check.work.mkdir(parents=True, exist_ok=True)
        return _run(check, options.step or ["build", "devices", "tests", "rows"])
    except InstallError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped: --step goes on where it was", file=sys.stderr)
        return 130


def _run(check: steps.Check, names: list[str]) -> int:
    """Run the steps and write the report after each, so that a machine that goes away leaves one."""
    version = re.search(
        r'__version__ = "(.+)"', (ROOT / "app" / "jan_serve" / "__init__.py").read_text(encoding="utf-8")
    )
    path = check.work / "report.json"
    known: Facts = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    report: Facts = {
        "backend": check.backend.name,
        "version": version[1] if version else "",
        "at": time.strftime("%Y-%m-%d %H:%M %Z"),
        "machine": {
            "system": " ".join((platform.system(), platform.release(), platform.machine())),
            "python": platform.python_version(),
        },
        "steps": {name: facts for name, facts in known.get("steps", {}).items() if name not in names},
    }
    for name in names:
        try:
            report["steps"][name] = getattr(steps, name)(check)
        except InstallError as error:
            report["steps"][name] = {"error": str(error)}
        path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        (check.work / "report.md").write_text(markdown(report), encoding="utf-8")
        if name == "build" and "error" in report["steps"][name]:
            break
    say(f"{verdict(report)} Report: {check.work / 'report.md'}")
    return 1 if failed_steps(report) else 0


def _file(path: str) -> Path:
    """The path, which argparse checks before minutes of a build."""
    if not Path(path).is_file():
        raise argparse.ArgumentTypeError(f"there is no file {path}")
    return Path(path)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "check-accelerator", description="Build for an accelerator, test and measure on it, write one report."
    )
    parser.add_argument("--backend", choices=BACKENDS, help="default: what this machine has a compiler for")
    parser.add_argument("--from", dest="prepared", type=Path, help="a folder of `prepare`: needs no network")
    parser.add_argument("--work", type=Path, help="folder of the build and the report")
    parser.add_argument("--model", type=_file, help="GGUF to measure with; default: random weights of 0.5 B")
    parser.add_argument("--step", action="append", choices=("build", "devices", "tests", "rows"))
    parser.add_argument("--tests", action="append", help="a file of tests; may be repeated")
    parser.add_argument("--row", action="append", help="a row of the benchmark; may be repeated")
    parser.add_argument("--rounds", type=int, default=1)
    return parser


def _prepare_options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "check-accelerator prepare", description="Collect what a machine without a network needs."
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--python-version", help="of that machine, as 3.12, on Linux on x86-64; default: as here"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

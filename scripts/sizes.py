"""Reports files and functions that are too large for one concept, and fails above the hard limits.

A file or function over the hard limit passes only with a reason in scripts/sizes.toml; an unneeded entry there fails
too. Tables of data are the usual reason.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("app", "tests", "models", "benchmarks", "scripts", "packaging")
FILE_WARN, FILE_FAIL = 400, 600
FUNCTION_WARN, FUNCTION_FAIL = 60, 90
PARAMETERS_WARN = 6


class Finding(NamedTuple):
    """Something over a limit. `key` is what sizes.toml names; `hard`: fails without a reason there."""

    key: str
    text: str
    hard: bool


def findings_of(path: Path) -> Iterator[Finding]:
    """The findings of one Python file."""
    name = path.relative_to(ROOT).as_posix()
    source = path.read_text(encoding="utf-8")
    n_lines = len(source.splitlines())
    if n_lines > FILE_WARN:
        yield Finding(name, f"{name}: {n_lines} lines", n_lines > FILE_FAIL)
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if length > FUNCTION_WARN:
            text = f"{name}:{node.lineno}: {node.name} has {length} lines"
            yield Finding(f"{name}::{node.name}", text, length > FUNCTION_FAIL)
        n_parameters = len(
            [a for a in node.args.posonlyargs + node.args.args if a.arg not in ("self", "cls")]
        )
        if n_parameters > PARAMETERS_WARN:
            text = f"{name}:{node.lineno}: {node.name} has {n_parameters} positional parameters"
            yield Finding(f"{name}::{node.name}", text, False)


def main() -> int:
    """0 if nothing exceeds a hard limit without a reason."""
    reasons: dict[str, str] = tomllib.loads((ROOT / "scripts" / "sizes.toml").read_text(encoding="utf-8"))
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    findings = [finding for path in files for finding in findings_of(path)]
    failed = [finding for finding in findings if finding.hard and finding.key not in reasons]
    for finding in findings:
        if finding not in failed:
            print(f"note: {finding.text}" + (f" ({reasons[finding.key]})" if finding.key in reasons else ""))
    for finding in failed:
        print(f"too large: {finding.text}")
    unused = sorted(reasons.keys() - {finding.key for finding in findings if finding.hard})
    for key in unused:
        print(f"no longer needed in scripts/sizes.toml: {key}")
    print(f"{len(files)} files, {len(findings)} over the soft limits, {len(failed)} over the hard ones")
    return 1 if failed or unused else 0


if __name__ == "__main__":
    sys.exit(main())

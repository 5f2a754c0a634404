"""Reports files and functions that are too large for one concept, and fails above the hard limits.

A file or function over the hard limit passes only with a reason in scripts/sizes.toml; an unneeded entry there fails
too. Tables of data are the usual reason. The table `budgets` there bounds what grows by number: lines of the package
and of each of its parts, settings, constants of scheduling and drafting. A change that raises one says why in its
message; one that goes well below lowers it. With -v it also names what is over the soft limits.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from jan_serve.dialects.options import ServerSettings

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("app", "tests", "models", "benchmarks", "kernels", "scripts", "packaging")
FILE_WARN, FILE_FAIL = 400, 600
FUNCTION_WARN, FUNCTION_FAIL = 60, 90
PARAMETERS_WARN = 6
SLACK, LEAST_SLACK = 0.02, 20
"""How far below its budget something may be, as a share and as a number."""


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


def counted() -> dict[str, int]:
    """What the budgets bound, by name."""
    package = ROOT / "app" / "jan_serve"
    lines = {
        path: len(path.read_text(encoding="utf-8").splitlines()) for path in sorted(package.rglob("*.py"))
    }
    counts = {"app": sum(lines.values())}
    for folder in sorted({path.relative_to(package).parts[0] for path in lines if path.parent != package}):
        counts[f"app/{folder}"] = sum(
            count for path, count in lines.items() if package / folder in path.parents
        )
    counts["settings"] = len(ServerSettings.model_fields)
    counts["constants of scheduling and drafting"] = sum(
        isinstance(node, ast.AnnAssign) and "Final" in ast.unparse(node.annotation)
        for part in ("scheduling", "drafting")
        for path in (package / "engine" / part).glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
    )
    return counts


def over_budget(budgets: dict[str, int]) -> list[str]:
    """What grew beyond its budget, has none, or left it behind."""
    counts = counted()
    problems = [f"no budget in scripts/sizes.toml: {name}" for name in counts.keys() - budgets.keys()]
    problems += [f"a budget of nothing: {name}" for name in budgets.keys() - counts.keys()]
    for name in sorted(counts.keys() & budgets.keys()):
        count, budget = counts[name], budgets[name]
        if count > budget:
            problems.append(
                f"over budget: {name} has {count}, and {budget} in scripts/sizes.toml: take as much out, or raise"
                " it there and say in the commit message who asked for it (CONTRIBUTING, Rules)"
            )
        elif count < budget - max(budget * SLACK, LEAST_SLACK):
            problems.append(f"lower the budget: {name} has {count}, and {budget} in scripts/sizes.toml")
    return problems


def main() -> int:
    """0 if nothing exceeds a hard limit without a reason, or a budget."""
    content = tomllib.loads((ROOT / "scripts" / "sizes.toml").read_text(encoding="utf-8"))
    budgets: dict[str, int] = content.pop("budgets")
    reasons: dict[str, str] = content
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    findings = [finding for path in files for finding in findings_of(path)]
    failed = [finding for finding in findings if finding.hard and finding.key not in reasons]
    for finding in findings:
        if finding not in failed and "-v" in sys.argv:
            print(f"note: {finding.text}" + (f" ({reasons[finding.key]})" if finding.key in reasons else ""))
    for finding in failed:
        print(f"too large: {finding.text}")
    unused = sorted(reasons.keys() - {finding.key for finding in findings if finding.hard})
    for key in unused:
        print(f"no longer needed in scripts/sizes.toml: {key}")
    problems = over_budget(budgets)
    for problem in problems:
        print(problem)
    print(f"{len(files)} files, {len(findings)} over the soft limits, {len(failed)} over the hard ones")
    return 1 if failed or unused or problems else 0


if __name__ == "__main__":
    sys.exit(main())

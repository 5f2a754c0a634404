"""The report of a check, as JSON and as Markdown."""

from __future__ import annotations

from scripts.accelerator.steps import Facts


def markdown(report: Facts) -> str:
    """What people read of the report; a step that failed says why."""
    found = [f"# {report['backend']} on {report['machine']['system']}", ""]
    found += [f"jan-serve {report['version']}, {report['at']}. {verdict(report)}", ""]
    found += [f"- {name}: {text}" for name, text in _steps(report["steps"])]
    found += [*_devices(report["steps"].get("devices", {})), *_rows(report["steps"].get("rows", {}))]
    failed = report["steps"].get("tests", {}).get("failed", [])
    if failed:
        found += ["", "## Failed tests", "", *(f"- {each}" for each in failed)]
    return "\n".join(found) + "\n"


def failed_steps(report: Facts) -> list[str]:
    """Those with an error, and those that ended with a status other than 0."""
    return [name for name, facts in report["steps"].items() if "error" in facts or facts.get("status")]


def verdict(report: Facts) -> str:
    """A sentence."""
    failed = failed_steps(report)
    return f"Not all is well: {', '.join(failed)}." if failed else "All steps succeeded."


def _steps(steps: Facts) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, facts in steps.items():
        if "error" in facts:
            found.append((name, f"failed: {facts['error']} (`--step {name}` repeats it alone)"))
        elif name == "build":
            arguments = f"CMAKE_ARGS `{facts['cmake_args']}`" if facts["cmake_args"] else "no CMAKE_ARGS"
            found.append((name, f"{facts['seconds']} s, {arguments}"))
        elif name == "tests":
            wrong = facts["failures"] + facts["errors"]
            found.append((name, f"{facts['tests']} run, {wrong} failed, {facts['skipped']} skipped"))
        elif name == "rows":
            missing = f", not measured: {', '.join(facts['missing'])}" if facts["missing"] else ""
            found.append((name, f"with {facts['model']}{missing}"))
    return found


def _devices(facts: Facts) -> list[str]:
    devices: list[Facts] = facts.get("doctor", {}).get("engine", {}).get("devices", [])
    if not devices:
        return []
    lines = ["", "## Devices", "", "| name | kind | description | free |", "|---|---|---|---|"]
    for each in devices:
        free = each.get("free_bytes", 0) / 2**30
        lines.append(
            f"| {each.get('name')} | {each.get('kind')} | {each.get('description')} | {free:.1f} GiB |"
        )
    return lines


def _rows(facts: Facts) -> list[str]:
    device: dict[str, dict[str, float]] = facts.get("device", {})
    if not device:
        return []
    cpu: dict[str, dict[str, float]] = facts["cpu"]
    lines = ["", "## Rows", "", "| row | figure | device | CPU | ratio |", "|---|---|---|---|---|"]
    for row, figures in device.items():
        for name, value in figures.items():
            other = cpu.get(row, {}).get(name)
            ratio = f"{value / other:.2f}" if other else ""
            lines.append(
                f"| {row} | {name} | {value:.4g} | {'' if other is None else f'{other:.4g}'} | {ratio} |"
            )
    return lines

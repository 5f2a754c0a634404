"""Plans of each platform, compared with golden files. JAN_GOLDEN=write rewrites them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.daemon.specs import PLANS, plan_text

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", PLANS)
def test_plans_match_the_golden_files(name: str) -> None:
    manager, spec = PLANS[name]
    text = plan_text("install", manager.install(spec)) + plan_text("uninstall", manager.uninstall(spec))
    for action in ("start", "stop", "restart"):
        words = [" | ".join(command.words) for command in manager.control(spec, action)]
        text += f"=== {action}\n" + "\n".join(words) + "\n"
    text += "=== query\n" + " | ".join(manager.query(spec).words) + "\n"
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("JAN_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PLANS)
def test_uninstall_removes_every_installed_file(name: str) -> None:
    manager, spec = PLANS[name]
    plan, end = manager.install(spec), manager.uninstall(spec)
    assert {file.path for file in plan.files if not file.keep} <= set(end.removed)
    assert {file for file in plan.files if file.keep} == set(end.withdrawn)


def test_units_contain_no_settings() -> None:
    text = "".join(plan_text("", manager.install(spec)) for manager, spec in PLANS.values())
    for word in ("--port", "--models-dir", "JAN_SERVE_", "api_key", "--host"):
        assert word not in text

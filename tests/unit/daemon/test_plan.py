"""Plans of all managers, and their execution."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from jan_serve.daemon.launchd import Launchd
from jan_serve.daemon.plan import (
    Command,
    CommandResult,
    ServiceFailed,
    ServicePlan,
    Start,
    UnitFile,
    apply,
    starts_on_demand,
)
from jan_serve.daemon.systemd import Systemd
from jan_serve.daemon.windows import WindowsTask
from jan_serve.store.files import write_atomically
from tests.unit.daemon.specs import PLANS, linux, mac, plan_text, windows

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


class Recorder:
    """Runs nothing; fails the commands that begin with these words."""

    def __init__(self, *failing: str) -> None:
        self._failing = failing
        self.calls: list[str] = []

    def __call__(self, words: Sequence[str]) -> CommandResult:
        line = " ".join(words)
        self.calls.append(line)
        return (
            CommandResult(1, "it broke")
            if line.startswith(self._failing) and self._failing
            else CommandResult(0, "")
        )


def plan(folder: Path, content: str = "unit\n") -> ServicePlan:
    """A service of one unit and a configuration file."""
    return ServicePlan(
        folders=(folder / "data",),
        before=(Command(("stop",), may_fail=True),),
        files=(
            UnitFile(folder / "units" / "a.service", content),
            UnitFile(folder / "etc" / "config.toml", "port = 1\n", keep=True),
        ),
        removed=(folder / "units" / "a.socket",),
        after=(Command(("start",)),),
    )


def uninstall(folder: Path) -> ServicePlan:
    """The end of that service."""
    return ServicePlan(
        removed=(folder / "units" / "a.service",),
        withdrawn=(UnitFile(folder / "etc" / "config.toml", "port = 1\n", keep=True),),
    )


def test_a_plan_is_idempotent(tmp_path: Path) -> None:
    run = Recorder()
    assert len(apply(plan(tmp_path), run)) == 2
    assert apply(plan(tmp_path), run) == []
    assert run.calls == ["stop", "start", "start"]
    assert (tmp_path / "units" / "a.service").stat().st_mode & 0o777 == 0o644


def test_folders_are_protected_while_empty(tmp_path: Path) -> None:
    steps = msgspec.structs.replace(plan(tmp_path), protect=(Command(("protect",)),))
    seen: list[tuple[str, bool, bool]] = []

    def run(words: Sequence[str]) -> CommandResult:
        seen.append((words[0], (tmp_path / "data").exists(), (tmp_path / "etc").exists()))
        return CommandResult(0, "")

    apply(steps, run)
    assert seen == [("stop", False, False), ("protect", True, False), ("start", True, True)]
    with pytest.raises(ServiceFailed, match="protect"):
        apply(msgspec.structs.replace(steps, folders=(tmp_path / "more",)), Recorder("protect"))


def test_a_link_is_not_protected(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "other")
    run = Recorder()
    with pytest.raises(ServiceFailed, match="is a link"):
        apply(msgspec.structs.replace(plan(tmp_path), protect=(Command(("protect",)),)), run)
    assert run.calls == ["stop"]
    assert not (tmp_path / "etc").exists()
    apply(plan(tmp_path), run)


def test_a_change_stops_the_service_first(tmp_path: Path) -> None:
    apply(plan(tmp_path), Recorder())
    run = Recorder("stop")
    assert apply(plan(tmp_path, "changed\n"), run) == [tmp_path / "units" / "a.service"]
    assert run.calls == ["stop", "start"]


def test_a_file_of_the_user_is_kept(tmp_path: Path) -> None:
    apply(plan(tmp_path), Recorder())
    (tmp_path / "etc" / "config.toml").write_text("port = 2\n")
    apply(plan(tmp_path, "changed\n"), Recorder())
    apply(uninstall(tmp_path), Recorder())
    assert (tmp_path / "etc" / "config.toml").read_text() == "port = 2\n"


def test_uninstall_leaves_no_files(tmp_path: Path) -> None:
    apply(plan(tmp_path), Recorder())
    apply(uninstall(tmp_path), Recorder())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert not (tmp_path / "etc").exists()


def test_a_failing_command_raises(tmp_path: Path) -> None:
    with pytest.raises(ServiceFailed, match="`start` failed: it broke"):
        apply(plan(tmp_path), Recorder("start"))


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "units").write_text("a file where a folder should be")
    with pytest.raises(ServiceFailed, match="units"):
        apply(plan(tmp_path), Recorder())


def test_windows_files_have_its_line_ends(tmp_path: Path) -> None:
    apply(ServicePlan(files=(UnitFile(tmp_path / "task.xml", "<a/>\n", encoding="utf-16"),)), Recorder())
    raw = (tmp_path / "task.xml").read_bytes()
    assert raw.decode("utf-16") == "<a/>\r\n"
    assert raw[:2] in (b"\xff\xfe", b"\xfe\xff")


@pytest.mark.parametrize("start", ["at-login", "on-demand"])
def test_the_kind_of_start_is_read_from_the_installed_files(tmp_path: Path, start: Start) -> None:
    for manager, spec in (
        (Systemd(), linux("user", start, config_home=tmp_path)),
        (Launchd(), msgspec.structs.replace(mac("user", start), home=tmp_path)),
    ):
        assert not starts_on_demand(manager, spec)
        for file in manager.install(spec).files:
            write_atomically(Path(file.path), file.content.encode())
        assert starts_on_demand(manager, spec) == (start == "on-demand")
    assert not starts_on_demand(WindowsTask(), windows("user"))

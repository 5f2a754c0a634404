"""Plans of each platform, compared with golden files. JAN_GOLDEN=write rewrites them."""

from __future__ import annotations

import dataclasses
import os
import plistlib
from pathlib import Path, PureWindowsPath
from xml.etree import ElementTree

import pytest

from jan_serve.daemon.launchd import Launchd, property_list
from jan_serve.daemon.plan import ServiceState
from jan_serve.daemon.systemd import Systemd, quoted
from jan_serve.daemon.windows import WindowsService, WindowsTask, task_xml
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


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("/usr/bin/jan-serve", "/usr/bin/jan-serve"),
        ("/opt/my programs/jan", '"/opt/my programs/jan"'),
        ("100%", "100%%"),
        ("$HOME", "$$HOME"),
        ('a"b\\', '"a\\"b\\\\"'),
        ("", '""'),
    ],
)
def test_words_of_exec_start_are_escaped(word: str, text: str) -> None:
    assert quoted(word) == text


def test_property_lists_are_valid() -> None:
    content = plistlib.loads(property_list(mac("system", "on-demand")).encode())
    assert content["ProgramArguments"][-2:] == [
        "--config",
        "/Library/Application Support/jan-serve/config.toml",
    ]
    assert content["UserName"] == "ada"
    assert content["Sockets"]["Listener"]["SockServiceName"] == "1337"
    assert "KeepAlive" not in content


def test_tasks_are_valid_xml() -> None:
    root = ElementTree.fromstring(task_xml(windows("user")).encode("utf-16"))
    names = {"t": "http://schemas.microsoft.com/windows/2004/02/mit/task"}
    command = root.find("t:Actions/t:Exec/t:Command", names)
    assert command is not None
    assert command.text == "C:\\Program Files\\jan-serve\\jan-serve.exe"


@pytest.mark.parametrize("place", ["D:/models of all", "C:/Users/Ada L/AppData/Local/jan-serve"])
def test_a_folder_of_the_user_keeps_its_rights(place: str) -> None:
    folder = PureWindowsPath(place)
    spec = windows("system")
    config_file = folder / "config.toml" if folder.is_relative_to(spec.home) else spec.config_file
    spec = dataclasses.replace(spec, data_dir=folder, config_file=config_file)
    plan = WindowsService().install(spec)
    assert plan.protect == ()
    rights = [command.words for command in plan.after if command.words[0] == "icacls.exe"]
    assert rights == [("icacls.exe", str(folder), "/grant", "*S-1-5-19:(OI)(CI)M")]


def test_units_contain_no_settings() -> None:
    text = "".join(plan_text("", manager.install(spec)) for manager, spec in PLANS.values())
    for word in ("--port", "--models-dir", "JAN_SERVE_", "api_key", "--host"):
        assert word not in text


SYSTEMD_RUNNING = """\
LoadState=loaded
ActiveState=active
SubState=running
UnitFileState=enabled
MainPID=4711

LoadState=not-found
ActiveState=inactive
SubState=dead
UnitFileState=
MainPID=0
"""
SYSTEMD_WAITING = """\
LoadState=loaded
ActiveState=inactive
SubState=dead
UnitFileState=static
MainPID=0

LoadState=loaded
ActiveState=active
SubState=listening
UnitFileState=enabled
"""
SYSTEMD_ABSENT = SYSTEMD_RUNNING.replace("LoadState=loaded", "LoadState=not-found")
LAUNCHD_RUNNING = """\
gui/501/ai.jan.serve = {
\tactive count = 1
\tpath = /Users/ada/Library/LaunchAgents/ai.jan.serve.plist
\tstate = running

\tprogram = /opt/homebrew/bin/jan-serve
\tpid = 812
\tproperties = {
\t\tpid = 1
\t}
}
"""
SC_RUNNING = """\

SERVICE_NAME: jan-serve
        TYPE               : 10  WIN32_OWN_PROCESS
        STATE              : 4  RUNNING
                                (STOPPABLE, NOT_PAUSABLE, ACCEPTS_SHUTDOWN)
        WIN32_EXIT_CODE    : 0  (0x0)
        SERVICE_EXIT_CODE  : 0  (0x0)
        CHECKPOINT         : 0x0
        WAIT_HINT          : 0x0
        PID                : 5120
        FLAGS              :
"""
SC_STOPPED = SC_RUNNING.replace("4  RUNNING", "1  STOPPED").replace("5120", "0")
# As on a German system.
SC_TRANSLATED = SC_RUNNING.replace("STATE ", "STATUS").replace("TYPE", "TYP ")


@pytest.mark.parametrize(
    ("output", "state"),
    [
        (SYSTEMD_RUNNING, ServiceState(True, True, 4711, "active (running)")),
        (SYSTEMD_WAITING, ServiceState(True, False, None, "inactive (dead), its socket listens")),
        (SYSTEMD_ABSENT, None),
        ("Failed to connect to bus: No medium found", None),
        ("", None),
    ],
)
def test_systemd_states_are_parsed(output: str, state: ServiceState | None) -> None:
    assert Systemd().state(0, output) == state


def test_launchd_states_are_parsed() -> None:
    assert Launchd().state(0, LAUNCHD_RUNNING) == ServiceState(True, True, 812, "running")
    waiting = LAUNCHD_RUNNING.replace("running", "waiting").replace("\tpid = 812\n", "")
    assert Launchd().state(0, waiting) == ServiceState(True, False, None, "waiting")
    assert Launchd().state(113, 'Could not find service "ai.jan.serve"') is None


def test_windows_states_are_parsed() -> None:
    service = WindowsService()
    assert service.state(0, SC_RUNNING) == ServiceState(True, True, 5120, "running")
    assert service.state(0, SC_TRANSLATED) == ServiceState(True, True, 5120, "running")
    assert service.state(0, SC_STOPPED) == ServiceState(True, False, None, "stopped")
    assert service.state(1060, "[SC] EnumQueryServicesStatus:OpenService FAILED 1060:") is None
    task = WindowsTask()
    assert task.state(0, "4\r\n") == ServiceState(True, True, None, "running")
    assert task.state(0, "3\r\n") == ServiceState(True, False, None, "not running")
    assert task.state(1, "Get-ScheduledTask : No MSFT_ScheduledTask objects found") is None


def test_the_default_data_folder_needs_no_write_exception() -> None:
    unit = plan_text("", Systemd().install(linux("system", "at-login")))
    assert "ReadWritePaths" not in unit

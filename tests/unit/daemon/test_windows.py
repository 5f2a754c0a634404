"""The service of Windows."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import PureWindowsPath
from xml.etree import ElementTree

import msgspec
import pytest

from jan_serve.daemon.plan import ServiceFailed, ServiceStatus
from jan_serve.daemon.windows import StopRelay, WindowsService, WindowsTask, host_service, task_xml
from tests.unit.daemon.specs import windows


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
    spec = msgspec.structs.replace(spec, data_dir=folder, config_file=config_file)
    plan = WindowsService().install(spec)
    assert plan.protect == ()
    rights = [command.words for command in plan.after if command.words[0] == "icacls.exe"]
    assert rights == [("icacls.exe", str(folder), "/grant", "*S-1-5-19:(OI)(CI)M")]


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


def test_windows_states_are_parsed() -> None:
    service = WindowsService()
    assert service.state(0, SC_RUNNING) == ServiceStatus(True, True, 5120, "running")
    assert service.state(0, SC_TRANSLATED) == ServiceStatus(True, True, 5120, "running")
    assert service.state(0, SC_STOPPED) == ServiceStatus(True, False, None, "stopped")
    assert service.state(1060, "[SC] EnumQueryServicesStatus:OpenService FAILED 1060:") is None
    task = WindowsTask()
    assert task.state(0, "4\r\n") == ServiceStatus(True, True, None, "running")
    assert task.state(0, "3\r\n") == ServiceStatus(True, False, None, "not running")
    assert task.state(1, "Get-ScheduledTask : No MSFT_ScheduledTask objects found") is None


def test_an_early_stop_waits_until_the_server_listens() -> None:
    stopped: list[str] = []
    relay = StopRelay(lambda seconds: None)
    relay.request_stop()
    assert stopped == []
    relay.listening(lambda: stopped.append("stop"))
    assert stopped == ["stop"]


def test_a_stop_of_a_listening_server() -> None:
    stopped: list[str] = []
    waits: list[float] = []
    relay = StopRelay(waits.append)
    relay.listening(lambda: stopped.append("stop"))
    relay.alive(0)
    assert stopped == []
    relay.request_stop()
    relay.stopping(30)
    assert (stopped, waits) == (["stop"], [45])


@pytest.mark.skipif(find_spec("servicemanager") is not None, reason="pywin32 is here")
def test_missing_pywin32_is_reported() -> None:
    with pytest.raises(ServiceFailed, match="pip install"):
        host_service(lambda observer: 0)

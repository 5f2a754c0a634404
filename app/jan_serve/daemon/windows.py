"""Windows: a scheduled task at the user's logon, or a system service. Neither supports start on demand.
Task: the XML schema of Task Scheduler 1.2. Service: the Service Control Manager, through sc.exe; `host_service` runs
the server in it."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, Final, cast
from xml.sax.saxutils import escape

from jan_serve.daemon.plan import (
    NAME,
    TITLE,
    Action,
    Command,
    ServiceFailed,
    ServicePlan,
    ServiceSpec,
    ServiceStatus,
    UnitFile,
)
from jan_serve.daemon.running import STOP_MARGIN_S, ServerObserver

LOCAL_SERVICE: Final = "NT AUTHORITY\\LocalService"
_SERVICE_RIGHT: Final = "*S-1-5-19:(OI)(CI)M"
_SYSTEM_SID: Final = "*S-1-5-18"
_ADMINISTRATORS_SID: Final = "*S-1-5-32-544"
_SERVICE_STOPPED: Final = "1"
_SERVICE_RUNNING: Final = "4"
_TASK_RUNNING: Final = "4"


def task_xml(spec: ServiceSpec) -> str:
    """The task: at logon, hidden, without a time limit, at normal priority (tasks default to a lower one)."""
    program, *arguments = spec.run_command
    user = escape(spec.user)
    return f"""<?xml version="1.0" encoding="UTF-16"?>
<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <RegistrationInfo>
    <Description>{escape(TITLE)}</Description>
  </RegistrationInfo>
  <Triggers>
    <LogonTrigger>
      <UserId>{user}</UserId>
    </LogonTrigger>
  </Triggers>
  <Principals>
    <Principal id="Author">
      <UserId>{user}</UserId>
      <LogonType>InteractiveToken</LogonType>
      <RunLevel>LeastPrivilege</RunLevel>
    </Principal>
  </Principals>
  <Settings>
    <MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
    <Hidden>true</Hidden>
    <Priority>5</Priority>
    <RestartOnFailure>
      <Interval>PT1M</Interval>
      <Count>3</Count>
    </RestartOnFailure>
  </Settings>
  <Actions Context="Author">
    <Exec>
      <Command>{escape(program)}</Command>
      <Arguments>{escape(subprocess.list2cmdline(arguments))}</Arguments>
    </Exec>
  </Actions>
</Task>
"""


class WindowsTask:
    """A ServiceManager for a scheduled task."""

    name = "Task Scheduler"
    on_demand_mark: str | None = None

    def install(self, spec: ServiceSpec) -> ServicePlan:
        path = _task_file(spec)
        return ServicePlan(
            before=(_task("/End", may_fail=True),),
            files=(UnitFile(path, task_xml(spec), encoding="utf-16"),),
            after=(_task("/Create", "/XML", str(path), "/F"), _task("/Run")),
        )

    def uninstall(self, spec: ServiceSpec) -> ServicePlan:
        return ServicePlan(
            before=(_task("/End", may_fail=True), _task("/Delete", "/F", may_fail=True)),
            removed=(_task_file(spec),),
        )

    def control(self, spec: ServiceSpec, action: Action) -> tuple[Command, ...]:
        """A stop ends the program at once: running requests do not finish."""
        end = _task("/End", may_fail=action == "restart")
        start = _task("/Run")
        return {"start": (start,), "stop": (end,), "restart": (end, start)}[action]

    def query(self, spec: ServiceSpec) -> Command:
        """Prints a number, because Windows translates the words."""
        script = f"(Get-ScheduledTask -TaskName '{NAME}' -ErrorAction Stop).State.value__"
        return Command(("powershell.exe", "-NoProfile", "-Command", script), may_fail=True)

    def state(self, status: int, output: str) -> ServiceStatus | None:
        number = output.strip()
        if status != 0 or not number.isdigit():
            return None
        running, enabled = number == _TASK_RUNNING, number != "1"
        detail = "running" if running else "not running" if enabled else "disabled"
        return ServiceStatus(enabled, running, None, detail)


class WindowsService:
    """A ServiceManager for a system service, under the least privileged account."""

    name = "Windows services"
    on_demand_mark: str | None = None

    def install(self, spec: ServiceSpec) -> ServicePlan:
        folder = str(spec.data_dir)
        command = subprocess.list2cmdline([*spec.run_command, "--windows-service"])
        options = ("binPath=", command, "start=", "auto", "obj=", LOCAL_SERVICE)
        restart = "restart/2000/restart/10000/restart/60000"
        return ServicePlan(
            folders=(spec.data_dir,),
            protect=_protection(spec) if _is_ours(spec) else (),
            files=_config(spec),
            after=(
                _sc("create", NAME, *options, "DisplayName=", NAME, may_fail=True),
                _sc("config", NAME, *options),
                _sc("description", NAME, TITLE),
                _sc("failure", NAME, "reset=", "60", "actions=", restart),
                *(() if _is_ours(spec) else (Command(("icacls.exe", folder, "/grant", _SERVICE_RIGHT)),)),
                _sc("start", NAME, may_fail=True),
                _sc("query", NAME),
            ),
        )

    def uninstall(self, spec: ServiceSpec) -> ServicePlan:
        return ServicePlan(
            withdrawn=_config(spec),
            after=(_sc("stop", NAME, may_fail=True), _sc("delete", NAME, may_fail=True)),
        )

    def control(self, spec: ServiceSpec, action: Action) -> tuple[Command, ...]:
        """PowerShell's restart waits until the service has stopped; sc.exe does not."""
        if action == "restart":
            return (Command(("powershell.exe", "-NoProfile", "-Command", f"Restart-Service {NAME}")),)
        return (_sc(action, NAME),)

    def query(self, spec: ServiceSpec) -> Command:
        return _sc("queryex", NAME, may_fail=True)

    def state(self, status: int, output: str) -> ServiceStatus | None:
        """Windows translates the lines, but not their order and numbers."""
        numbers = re.findall(r"(?m)^[ \t]*\S[^:\n]*:[ \t]*(\d+)", output)
        if status != 0 or len(numbers) < 2:
            return None
        running = numbers[1] == _SERVICE_RUNNING
        pid = int(numbers[-1]) if running and len(numbers) > 3 else None
        detail = "running" if running else "stopped" if numbers[1] == _SERVICE_STOPPED else "changing"
        return ServiceStatus(True, running, pid or None, detail)


def _config(spec: ServiceSpec) -> tuple[UnitFile, ...]:
    """The initial configuration file of a system service that uses the default path."""
    if spec.config_file is None or spec.config_file.parent != spec.data_dir:
        return ()
    content = f"# Settings of the {NAME} service.\ndata_dir = '{spec.data_dir}'\n"
    return (UnitFile(spec.config_file, content, keep=True),)


def _is_ours(spec: ServiceSpec) -> bool:
    """Whether the data folder is the system default, neither chosen by a user nor in a home folder."""
    return bool(_config(spec)) and not spec.data_dir.is_relative_to(spec.home)


def _protection(spec: ServiceSpec) -> tuple[Command, ...]:
    """Take ownership of the data folder and set minimal rights, which its content inherits.
    In %ProgramData% every user may read and add files, and may have created the folder first."""
    folder = str(spec.data_dir)
    all_rights = (f"{_SYSTEM_SID}:(OI)(CI)F", f"{_ADMINISTRATORS_SID}:(OI)(CI)F")
    return (
        Command(("takeown.exe", "/F", folder, "/A")),
        Command(("icacls.exe", folder, "/reset")),
        Command(("icacls.exe", folder, "/inheritance:r", "/grant:r", *all_rights, _SERVICE_RIGHT)),
    )


def _task_file(spec: ServiceSpec) -> PurePath:
    return spec.data_dir / "service" / f"{NAME}.xml"


def _task(action: str, *words: str, may_fail: bool = False) -> Command:
    return Command(("schtasks.exe", action, "/TN", NAME, *words), may_fail)


def _sc(*words: str, may_fail: bool = False) -> Command:
    return Command(("sc.exe", *words), may_fail)


class StopRelay(ServerObserver):
    """Accepts a stop at any time, even before the server listens. Thread-safe."""

    def __init__(self, pending: Callable[[float], None]) -> None:
        """pending: receives the longest duration of a stop, in seconds."""
        self._pending = pending
        self._lock = threading.Lock()
        self._stop: Callable[[], None] | None = None
        self._stop_requested = False

    def request_stop(self) -> None:
        """Stop the server now, or as soon as it listens."""
        with self._lock:
            self._stop_requested = True
            stop = self._stop
        if stop is not None:
            stop()

    def listening(self, stop: Callable[[], None]) -> None:
        with self._lock:
            self._stop = stop
            requested = self._stop_requested
        if requested:
            stop()

    def stopping(self, drain_s: float) -> None:
        self._pending(drain_s + STOP_MARGIN_S)


def host_service(serve: Callable[[ServerObserver], int]) -> int:
    """Run `serve` as the service that the Service Control Manager is starting; blocks until it stops.
    Raises ServiceFailed if pywin32 is missing or no service is starting."""
    try:
        import servicemanager
        import win32service
        import win32serviceutil
    except ImportError:
        raise ServiceFailed(
            "a Windows service needs pywin32 in the environment of jan-serve: pip install pywin32"
        ) from None

    ended: list[int] = []

    class Service(win32serviceutil.ServiceFramework):
        """One per process; the framework reports when it runs and when it has stopped."""

        _svc_name_ = NAME
        _svc_display_name_ = NAME

        def __init__(self, args: list[str]) -> None:
            super().__init__(args)
            self._relay = StopRelay(self._report_stop_pending)

        def _report_stop_pending(self, seconds: float) -> None:
            # The stub lacks types.
            cast(Any, self).ReportServiceStatus(
                win32service.SERVICE_STOP_PENDING, waitHint=int(seconds * 1000)
            )

        def SvcDoRun(self) -> None:
            ended.append(serve(self._relay))

        def SvcStop(self) -> None:
            self._report_stop_pending(STOP_MARGIN_S)
            self._relay.request_stop()

        def SvcShutdown(self) -> None:
            self.SvcStop()

    servicemanager.Initialize()
    servicemanager.PrepareToHostSingle(Service)
    try:
        cast(Any, servicemanager).StartServiceCtrlDispatcher()
    except win32service.error as error:
        raise ServiceFailed(f"the Service Control Manager is not starting a service: {error}") from None
    return ended[0] if ended else 1

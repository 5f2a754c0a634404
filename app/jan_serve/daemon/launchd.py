"""launchd property lists: a LaunchAgent in the user's session, or a LaunchDaemon under that user's account.
Keys: launchd.plist(5). launchd owns the socket of an on-demand service; `running` takes it over."""

from __future__ import annotations

import plistlib
import re
from pathlib import PurePath, PurePosixPath
from typing import Any, Final

from jan_serve.daemon.plan import NAME, Action, Command, ServicePlan, ServiceSpec, ServiceStatus, UnitFile

LABEL: Final = "ai.jan.serve"
SOCKET_KEY: Final = "Listener"
SYSTEM_CONFIG: Final = PurePosixPath("/Library/Application Support") / NAME / "config.toml"
SYSTEM_DATA: Final = SYSTEM_CONFIG.parent
_INITIAL_CONFIG: Final = UnitFile(
    SYSTEM_CONFIG, f'# Settings of the {NAME} service.\ndata_dir = "{SYSTEM_DATA}"\n', keep=True
)
_DAEMONS: Final = PurePosixPath("/Library/LaunchDaemons")
_STOP_S: Final = 45


def property_list(spec: ServiceSpec) -> str:
    content: dict[str, Any] = {
        "Label": LABEL,
        "ProgramArguments": list(spec.run_command),
        # Exit status 0 is a requested stop; after any other, restart.
        "KeepAlive": {"SuccessfulExit": False},
        "RunAtLoad": spec.start == "at-login",
        "ThrottleInterval": 10,
        "ExitTimeOut": _STOP_S,
        # The system throttles other types that have no window.
        "ProcessType": "Interactive",
        "Umask": 0o077,
        # The server writes its own log; this catches output before that, and crashes of the interpreter.
        "StandardOutPath": "/dev/null",
        "StandardErrorPath": str(spec.data_dir / "logs" / "service.err"),
    }
    if spec.start == "on-demand":
        host, port = spec.address
        content["Sockets"] = {
            SOCKET_KEY: {
                "SockNodeName": host,
                "SockServiceName": str(port),
                "SockType": "stream",
                "SockFamily": "IPv6" if ":" in host else "IPv4",
            }
        }
        # With a socket, KeepAlive would start it at once.
        del content["KeepAlive"]
    if spec.scope == "system":
        content["UserName"] = spec.user
    return plistlib.dumps(content, sort_keys=False).decode()


class Launchd:
    name = "launchd"
    on_demand_mark: str | None = "<key>Sockets</key>"

    def install(self, spec: ServiceSpec) -> ServicePlan:
        path = _path(spec)
        return ServicePlan(
            folders=(spec.data_dir / "logs",),
            before=(_launchctl("bootout", _target(spec), may_fail=True),),
            files=(UnitFile(path, property_list(spec)), *spec.unless_chosen(_INITIAL_CONFIG)),
            after=(
                _launchctl("enable", _target(spec)),
                # Fails if it is already loaded.
                _launchctl("bootstrap", _domain(spec), str(path), may_fail=True),
                _launchctl("print", _target(spec)),
            ),
        )

    def uninstall(self, spec: ServiceSpec) -> ServicePlan:
        return ServicePlan(
            before=(_launchctl("bootout", _target(spec), may_fail=True),),
            removed=(_path(spec), spec.data_dir / "logs" / "service.err"),
            withdrawn=spec.unless_chosen(_INITIAL_CONFIG),
        )

    def control(self, spec: ServiceSpec, action: Action) -> tuple[Command, ...]:
        if action == "stop":
            return (_launchctl("kill", "SIGTERM", _target(spec)),)
        again = ("-k",) if action == "restart" else ()
        return (_launchctl("kickstart", *again, _target(spec)),)

    def query(self, spec: ServiceSpec) -> Command:
        return _launchctl("print", _target(spec), may_fail=True)

    def state(self, status: int, output: str) -> ServiceStatus | None:
        """launchctl(1) calls this output unstable, so only its two oldest lines are read."""
        if status != 0:
            return None
        state = re.search(r"(?m)^\tstate = (.+)$", output)
        pid = re.search(r"(?m)^\tpid = (\d+)$", output)
        detail = state[1] if state else "loaded"
        return ServiceStatus(True, pid is not None, int(pid[1]) if pid else None, detail)


def _path(spec: ServiceSpec) -> PurePath:
    folder = _DAEMONS if spec.scope == "system" else spec.home / "Library" / "LaunchAgents"
    return folder / f"{LABEL}.plist"


def _domain(spec: ServiceSpec) -> str:
    return "system" if spec.scope == "system" else f"gui/{spec.uid}"


def _target(spec: ServiceSpec) -> str:
    return f"{_domain(spec)}/{LABEL}"


def _launchctl(*words: str, may_fail: bool = False) -> Command:
    return Command(("launchctl", *words), may_fail)

"""systemd units: user or system service, started at login or by the first connection.
Directives: systemd.service(5), systemd.exec(5), systemd.socket(5); all exist in systemd 245 and newer."""

from __future__ import annotations

import re
from pathlib import PurePath, PurePosixPath
from typing import Final

from jan_serve.daemon.plan import (
    NAME,
    TITLE,
    Action,
    Command,
    ServicePlan,
    ServiceSpec,
    ServiceStatus,
    UnitFile,
)

SERVICE: Final = f"{NAME}.service"
SOCKET: Final = f"{NAME}.socket"
SYSTEM_CONFIG: Final = PurePosixPath("/etc") / NAME / "config.toml"
SYSTEM_DATA: Final = PurePosixPath("/var/lib") / NAME
INITIAL_CONFIG: Final = UnitFile(
    SYSTEM_CONFIG,
    f"# Settings of the {NAME} service; `{NAME} config --config {SYSTEM_CONFIG}` shows all of them.\n"
    f'data_dir = "{SYSTEM_DATA}"\n',
    keep=True,
)
_SYSTEM_UNITS: Final = PurePosixPath("/etc/systemd/system")
_PROPERTIES: Final = ("LoadState", "ActiveState", "SubState", "UnitFileState", "MainPID")

# Only directives without privileges: a user's manager cannot change namespaces on every machine.
_HARDENING: Final = """\
UMask=0077
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
"""

# Omitted for accelerators: PrivateDevices, ProtectClock (it closes all devices but the clock's) and
# MemoryDenyWriteExecute (drivers compile kernels, ctypes generates callbacks at run time).
_SYSTEM_HARDENING: Final = """\
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
ProtectProc=invisible
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictNamespaces=yes
RemoveIPC=yes
LimitMEMLOCK=infinity
"""


def service_unit(spec: ServiceSpec) -> str:
    on_demand = spec.start == "on-demand"
    unit = [f"Description={TITLE}"]
    if on_demand:
        unit += [f"Requires={SOCKET}", f"After={SOCKET}"]
    if spec.scope == "system":
        unit += ["After=network.target"]
    # Do not restart forever after an error in the settings.
    unit += ["StartLimitIntervalSec=60", "StartLimitBurst=5"]
    service = [
        "Type=notify",
        "NotifyAccess=main",
        f"ExecStart={' '.join(quoted(word) for word in spec.run_command)}",
        "Restart=on-failure",
        "RestartSec=2",
        "RestartPreventExitStatus=2",
        # SystemdNotifier extends this for running requests.
        "TimeoutStopSec=45",
        "KillMode=mixed",
        "WatchdogSec=60",
        # The OOM killer kills a worker process; the server continues without it.
        "OOMPolicy=continue",
        "LimitNOFILE=65536",
        *_HARDENING.splitlines(),
    ]
    if spec.scope == "system":
        service += _system_lines(spec)
    sections = [("Unit", unit), ("Service", service)]
    if not on_demand:
        target = "default.target" if spec.scope == "user" else "multi-user.target"
        sections.append(("Install", [f"WantedBy={target}"]))
    return _text(sections)


def _system_lines(spec: ServiceSpec) -> list[str]:
    lines = [
        # systemd uses an existing account of this name, else a dynamic one.
        f"User={NAME}",
        "DynamicUser=yes",
        f"StateDirectory={NAME}",
        f"CacheDirectory={NAME}",
        "WorkingDirectory=%S/" + NAME,
        "Environment=HOME=%S/" + NAME,
        "Environment=XDG_CACHE_HOME=%C/" + NAME,
        *_SYSTEM_HARDENING.splitlines(),
    ]
    writable = [path for path in (spec.data_dir, spec.models_dir) if not path.is_relative_to(SYSTEM_DATA)]
    lines += [f"ReadWritePaths={_optional_path(path)}" for path in dict.fromkeys(writable)]
    if spec.device_groups:
        lines.append(f"SupplementaryGroups={' '.join(spec.device_groups)}")
    return lines


def socket_unit(spec: ServiceSpec) -> str:
    host, port = spec.address
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    socket = [f"ListenStream={address}", "NoDelay=yes"]
    if not (host.startswith("127.") or host == "::1"):
        socket.append("FreeBind=yes")
    return _text(
        [
            ("Unit", [f"Description={TITLE} (listens for it)"]),
            ("Socket", socket),
            ("Install", ["WantedBy=sockets.target"]),
        ]
    )


class Systemd:
    name = "systemd"
    on_demand_mark: str | None = "ListenStream="

    def install(self, spec: ServiceSpec) -> ServicePlan:
        folder = _folder(spec)
        on_demand = spec.start == "on-demand"
        socket = (UnitFile(folder / SOCKET, socket_unit(spec)),) if on_demand else ()
        started = SOCKET if on_demand else SERVICE
        return ServicePlan(
            before=(_systemctl(spec, "disable", "--now", SOCKET, SERVICE, may_fail=True),),
            files=(
                UnitFile(folder / SERVICE, service_unit(spec)),
                *socket,
                *spec.unless_chosen(INITIAL_CONFIG),
            ),
            removed=() if on_demand else (folder / SOCKET,),
            after=(_systemctl(spec, "daemon-reload"), _systemctl(spec, "enable", "--now", started)),
        )

    def uninstall(self, spec: ServiceSpec) -> ServicePlan:
        folder = _folder(spec)
        return ServicePlan(
            before=(_systemctl(spec, "disable", "--now", SOCKET, SERVICE, may_fail=True),),
            removed=(folder / SERVICE, folder / SOCKET),
            withdrawn=spec.unless_chosen(INITIAL_CONFIG),
            after=(
                _systemctl(spec, "daemon-reload"),
                _systemctl(spec, "reset-failed", SOCKET, SERVICE, may_fail=True),
            ),
        )

    def control(self, spec: ServiceSpec, action: Action) -> tuple[Command, ...]:
        """Stops the socket of an on-demand service too, else the next connection starts it."""
        units = (SOCKET, SERVICE) if spec.start == "on-demand" else (SERVICE,)
        if action == "restart":
            units = (SERVICE,)
        return (_systemctl(spec, action, *units),)

    def query(self, spec: ServiceSpec) -> Command:
        shown = f"--property={','.join(_PROPERTIES)}"
        return _systemctl(spec, "show", shown, SERVICE, SOCKET, may_fail=True)

    def state(self, status: int, output: str) -> ServiceStatus | None:
        """The output has one block of KEY=VALUE lines per unit."""
        blocks = [dict(re.findall(r"(?m)^(\w+)=(.*)$", block)) for block in output.strip().split("\n\n")]
        if status != 0 or len(blocks) != 2 or blocks[0].get("LoadState") != "loaded":
            return None
        service, socket = blocks
        pid = int(service.get("MainPID") or 0) or None
        detail = f"{service.get('ActiveState', '')} ({service.get('SubState', '')})"
        if socket.get("ActiveState") == "active":
            detail += ", its socket listens"
        enabled = "enabled" in (service.get("UnitFileState"), socket.get("UnitFileState"))
        return ServiceStatus(enabled, service.get("ActiveState") == "active", pid, detail)


def quoted(word: str) -> str:
    """Escape a word of ExecStart=: specifiers (%), variables ($), blanks and quotes become literal."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{text}"' if re.search(r"[\s'\";]", word) or not word else text


def _optional_path(path: PurePath) -> str:
    """A path for ReadWritePaths=, ignored by systemd if it does not exist."""
    text = "-" + str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text}"' if re.search(r"[\s'\"]", text) else text


def _folder(spec: ServiceSpec) -> PurePath:
    return _SYSTEM_UNITS if spec.scope == "system" else spec.config_home / "systemd" / "user"


def _systemctl(spec: ServiceSpec, *words: str, may_fail: bool = False) -> Command:
    manager = ("--user",) if spec.scope == "user" else ()
    return Command(("systemctl", *manager, *words), may_fail)


def _text(sections: list[tuple[str, list[str]]]) -> str:
    return "\n".join(f"[{name}]\n" + "".join(f"{line}\n" for line in lines) for name, lines in sections)

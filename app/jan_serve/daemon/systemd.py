"""Units of systemd: for a user's session or for the machine, started at once or by the first connection.

Directives: systemd.service(5), systemd.exec(5), systemd.socket(5); all are known to systemd 245 and newer.
"""

from __future__ import annotations

import re
from pathlib import PurePath, PurePosixPath
from typing import Final, Literal

from jan_serve.daemon.plan import NAME, TITLE, Command, Plan, ServiceSpec, State, UnitFile

SERVICE: Final = f"{NAME}.service"
SOCKET: Final = f"{NAME}.socket"
SYSTEM_CONFIG: Final = PurePosixPath("/etc") / NAME / "config.toml"
SYSTEM_DATA: Final = PurePosixPath("/var/lib") / NAME
_SYSTEM_UNITS: Final = PurePosixPath("/etc/systemd/system")
_PROPERTIES: Final = ("LoadState", "ActiveState", "SubState", "UnitFileState", "MainPID")

# A user's manager may not change namespaces on every machine, so only what needs no privilege is in both.
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

# Not here, because accelerators need them: PrivateDevices, ProtectClock (which closes all devices but the clock's) and
# MemoryDenyWriteExecute (drivers compile kernels; ctypes' callbacks are written at run time).
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
    """The text of jan-serve.service."""
    on_demand = spec.start == "on-demand"
    unit = [f"Description={TITLE}"]
    if on_demand:
        unit += [f"Requires={SOCKET}", f"After={SOCKET}"]
    if spec.scope == "system":
        unit += ["After=network.target"]
    # A mistake in the settings is not tried again and again.
    unit += ["StartLimitIntervalSec=60", "StartLimitBurst=5"]
    service = [
        "Type=notify",
        "NotifyAccess=main",
        f"ExecStart={' '.join(quoted(word) for word in spec.run_command)}",
        "Restart=on-failure",
        "RestartSec=2",
        "RestartPreventExitStatus=2",
        # The server tells systemd how long its running requests may take to end.
        "TimeoutStopSec=45",
        "KillMode=mixed",
        "WatchdogSec=60",
        # The kernel's memory killer ends a model's process; the server goes on without it.
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
        # An account of this name is used where there is one; else systemd lends one.
        f"User={NAME}",
        "DynamicUser=yes",
        f"StateDirectory={NAME}",
        f"CacheDirectory={NAME}",
        "WorkingDirectory=%S/" + NAME,
        "Environment=HOME=%S/" + NAME,
        "Environment=XDG_CACHE_HOME=%C/" + NAME,
        *_SYSTEM_HARDENING.splitlines(),
    ]
    writable = [path for path in (spec.data_dir, spec.models_dir) if not _is_below(path, SYSTEM_DATA)]
    lines += [f"ReadWritePaths={_optional_path(path)}" for path in dict.fromkeys(writable)]
    if spec.device_groups:
        lines.append(f"SupplementaryGroups={' '.join(spec.device_groups)}")
    return lines


def socket_unit(spec: ServiceSpec) -> str:
    """The text of jan-serve.socket, which listens for an on-demand service."""
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


def system_config() -> str:
    """The configuration file that a service of the machine begins with."""
    return (
        f"# Settings of the {NAME} service; `{NAME} config --config {SYSTEM_CONFIG}` shows all of them.\n"
        f'data_dir = "{SYSTEM_DATA}"\n'
    )


class Systemd:
    """See ServiceManager."""

    name = "systemd"

    def install(self, spec: ServiceSpec) -> Plan:
        """Part of ServiceManager."""
        folder = _folder(spec)
        files = [UnitFile(folder / SERVICE, service_unit(spec))]
        removed: tuple[PurePath, ...] = ()
        if spec.start == "on-demand":
            files.append(UnitFile(folder / SOCKET, socket_unit(spec)))
        else:
            removed = (folder / SOCKET,)
        files += _config(spec)
        started = SOCKET if spec.start == "on-demand" else SERVICE
        return Plan(
            before=(_systemctl(spec, "disable", "--now", SOCKET, SERVICE, may_fail=True),),
            files=tuple(files),
            removed=removed,
            after=(_systemctl(spec, "daemon-reload"), _systemctl(spec, "enable", "--now", started)),
        )

    def uninstall(self, spec: ServiceSpec) -> Plan:
        """Part of ServiceManager."""
        folder = _folder(spec)
        return Plan(
            before=(_systemctl(spec, "disable", "--now", SOCKET, SERVICE, may_fail=True),),
            removed=(folder / SERVICE, folder / SOCKET),
            withdrawn=_config(spec),
            after=(
                _systemctl(spec, "daemon-reload"),
                _systemctl(spec, "reset-failed", SOCKET, SERVICE, may_fail=True),
            ),
        )

    def control(self, spec: ServiceSpec, action: Literal["start", "stop", "restart"]) -> tuple[Command, ...]:
        """Part of ServiceManager. An on-demand service stops listening too: else the next request starts it."""
        units = (SOCKET, SERVICE) if spec.start == "on-demand" else (SERVICE,)
        if action == "restart":
            units = (SERVICE,)
        return (_systemctl(spec, action, *units),)

    def demand_mark(self, spec: ServiceSpec) -> tuple[PurePath, str] | None:
        """Part of ServiceManager."""
        return _folder(spec) / SOCKET, "ListenStream="

    def query(self, spec: ServiceSpec) -> Command:
        """Part of ServiceManager."""
        shown = f"--property={','.join(_PROPERTIES)}"
        return _systemctl(spec, "show", shown, SERVICE, SOCKET, may_fail=True)

    def state(self, status: int, output: str) -> State | None:
        """Part of ServiceManager. The output has a block of KEY=VALUE lines for each of the two units."""
        blocks = [dict(re.findall(r"(?m)^(\w+)=(.*)$", block)) for block in output.strip().split("\n\n")]
        if status != 0 or len(blocks) != 2 or blocks[0].get("LoadState") != "loaded":
            return None
        service, socket = blocks
        pid = int(service.get("MainPID") or 0) or None
        detail = f"{service.get('ActiveState', '')} ({service.get('SubState', '')})"
        if socket.get("ActiveState") == "active":
            detail += ", its socket listens"
        enabled = "enabled" in (service.get("UnitFileState"), socket.get("UnitFileState"))
        return State(enabled, service.get("ActiveState") == "active", pid, detail)


def quoted(word: str) -> str:
    """A word of ExecStart=: specifiers (%) and variables ($) mean themselves, blanks and quotes too."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{text}"' if re.search(r"[\s'\";]", word) or not word else text


def _optional_path(path: PurePath) -> str:
    """A path of a list of paths, ignored where it does not exist."""
    text = "-" + str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text}"' if re.search(r"[\s'\"]", text) else text


def _is_below(path: PurePath, folder: PurePath) -> bool:
    return path == folder or folder in path.parents


def _config(spec: ServiceSpec) -> tuple[UnitFile, ...]:
    """The configuration file that a service of the machine begins with, unless another one is named."""
    if spec.scope != "system" or spec.config_file != SYSTEM_CONFIG:
        return ()
    return (UnitFile(SYSTEM_CONFIG, system_config(), keep=True),)


def _folder(spec: ServiceSpec) -> PurePath:
    return _SYSTEM_UNITS if spec.scope == "system" else spec.config_home / "systemd" / "user"


def _systemctl(spec: ServiceSpec, *words: str, may_fail: bool = False) -> Command:
    manager = ("--user",) if spec.scope == "user" else ()
    return Command(("systemctl", *manager, *words), may_fail)


def _text(sections: list[tuple[str, list[str]]]) -> str:
    return "\n".join(f"[{name}]\n" + "".join(f"{line}\n" for line in lines) for name, lines in sections)

"""Services to render, one of each kind and platform, and their plans as text."""

from __future__ import annotations

from pathlib import PurePath, PurePosixPath, PureWindowsPath
from typing import Any

import msgspec

from jan_serve.daemon.launchd import Launchd
from jan_serve.daemon.plan import Scope, ServiceManager, ServicePlan, ServiceSpec, Start
from jan_serve.daemon.systemd import Systemd
from jan_serve.daemon.windows import WindowsService, WindowsTask


def linux(scope: Scope, start: Start, **changes: Any) -> ServiceSpec:
    """A service of systemd."""
    home = PurePosixPath("/home/ada")
    system = scope == "system"
    data = PurePosixPath("/var/lib/jan-serve") if system else home / ".local/share/jan-serve"
    spec = ServiceSpec(
        command=("/usr/bin/jan-serve",),
        scope=scope,
        start=start,
        config_file=PurePosixPath("/etc/jan-serve/config.toml") if system else None,
        address=("127.0.0.1", 1337),
        data_dir=data,
        models_dir=data / "models",
        device_groups=("video", "render") if system else (),
        user="ada",
        uid=1000,
        home=home,
        config_home=home / ".config",
    )
    return msgspec.structs.replace(spec, **changes)


def mac(scope: Scope, start: Start) -> ServiceSpec:
    """A service of launchd."""
    home = PurePosixPath("/Users/ada")
    support = PurePosixPath("/Library/Application Support/jan-serve")
    system = scope == "system"
    data = support if system else home / "Library/Application Support/jan-serve"
    return ServiceSpec(
        command=("/opt/homebrew/bin/jan-serve",),
        scope=scope,
        start=start,
        config_file=support / "config.toml" if system else None,
        address=("127.0.0.1", 1337),
        data_dir=data,
        models_dir=data / "models",
        user="ada",
        uid=501,
        home=home,
        config_home=home / "Library/Application Support",
    )


def windows(scope: Scope) -> ServiceSpec:
    """A task or a service of Windows."""
    home = PureWindowsPath("C:/Users/Ada L")
    system = scope == "system"
    data = PureWindowsPath("C:/ProgramData/jan-serve") if system else home / "AppData/Local/jan-serve"
    return ServiceSpec(
        command=("C:\\Program Files\\jan-serve\\jan-serve.exe",),
        scope=scope,
        start="at-login",
        config_file=data / "config.toml" if system else None,
        address=("127.0.0.1", 1337),
        data_dir=data,
        models_dir=data / "models",
        user="Ada L",
        home=home,
        config_home=home / "AppData/Local",
    )


ODD_FOLDER = PurePosixPath("/srv/mödels ünd 100%")
"""A folder whose name needs escaping in a unit file."""

PLANS: dict[str, tuple[ServiceManager, ServiceSpec]] = {
    "systemd-user-at-login": (Systemd(), linux("user", "at-login")),
    "systemd-user-on-demand": (Systemd(), linux("user", "on-demand", address=("::1", 8080))),
    "systemd-system-at-login": (Systemd(), linux("system", "at-login")),
    "systemd-system-on-demand": (
        Systemd(),
        linux(
            "system",
            "on-demand",
            command=("/opt/jan serve/$bin/python", "-P", "-m", "jan_serve"),
            address=("192.0.2.1", 1337),
            models_dir=ODD_FOLDER,
        ),
    ),
    "launchd-agent-at-login": (Launchd(), mac("user", "at-login")),
    "launchd-agent-on-demand": (Launchd(), mac("user", "on-demand")),
    "launchd-daemon-at-login": (Launchd(), mac("system", "at-login")),
    "windows-task": (WindowsTask(), windows("user")),
    "windows-service": (WindowsService(), windows("system")),
}


def plan_text(title: str, plan: ServicePlan) -> str:
    """A plan as a person would carry it out."""
    lines = [f"=== {title}"]
    lines += [f"folder {folder}" for folder in plan.folders]
    lines += [f"first {_line(command.words, command.may_fail)}" for command in plan.before]
    lines += [f"protect {_line(command.words, command.may_fail)}" for command in plan.protect]
    lines += [f"remove {path}" for path in plan.removed]
    lines += [f"remove {file.path} where it is unchanged" for file in plan.withdrawn]
    for file in plan.files:
        lines += [f"--- {file.path} ({file.encoding}{', kept' if file.keep else ''})", file.content]
    lines += [f"run {_line(command.words, command.may_fail)}" for command in plan.after]
    return "\n".join(lines) + "\n"


def _line(words: tuple[str, ...], may_fail: bool) -> str:
    return " | ".join(words) + (" (may fail)" if may_fail else "")


def unit_files(spec: ServiceSpec) -> dict[PurePath, str]:
    """The unit files of systemd by path."""
    plan = Systemd().install(spec)
    return {file.path: file.content for file in plan.files if file.path.suffix in (".service", ".socket")}

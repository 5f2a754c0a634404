"""Chooses the service manager of this machine and derives the service spec from the settings."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import stat
import sys
from pathlib import Path
from typing import Final

from jan_serve.cli.errors import CommandError, WrongUse
from jan_serve.cli.options import load_settings
from jan_serve.config import LoadedSettings
from jan_serve.daemon import launchd, systemd
from jan_serve.daemon.launchd import Launchd
from jan_serve.daemon.plan import NAME, Scope, ServiceManager, ServiceSpec, Start
from jan_serve.daemon.systemd import Systemd
from jan_serve.daemon.windows import WindowsService, WindowsTask
from jan_serve.store.files import default_config_file, user_path

_DEVICE_GROUPS: Final = ("video", "render")


def service_manager(scope: Scope) -> ServiceManager:
    """The service manager of this platform. Raises CommandError if there is none."""
    if sys.platform == "darwin":
        return Launchd()
    if sys.platform == "win32":
        return WindowsService() if scope == "system" else WindowsTask()
    if shutil.which("systemctl") is None:
        raise CommandError(
            "this machine has no systemd (systemctl is missing)",
            f"Run `{NAME} service run` from another service manager.",
        )
    return Systemd()


def system_folders() -> tuple[Path, Path]:
    """Configuration file and data folder of a service of the machine."""
    if sys.platform == "darwin":
        return Path(launchd.SYSTEM_CONFIG), Path(launchd.SYSTEM_DATA)
    if sys.platform == "win32":
        folder = Path(os.path.expandvars("%ProgramData%")) / NAME
        return folder / "config.toml", folder
    return Path(systemd.SYSTEM_CONFIG), Path(systemd.SYSTEM_DATA)


def service_settings(scope: Scope, config: Path | None) -> LoadedSettings:
    """The settings of the service. Raises SettingsError."""
    if scope == "user" or config is not None:
        return load_settings(config_file=config)
    file, data_dir = system_folders()
    try:
        exists = file.is_file()
    except PermissionError:  # reading the file reports it
        exists = True
    if exists:
        return load_settings(config_file=file)
    return load_settings({"data_dir": data_dir}, Path(os.devnull))


def service_spec(loaded: LoadedSettings, scope: Scope, start: Start, config: Path | None) -> ServiceSpec:
    """config: value of --config. Raises CommandError."""
    settings = loaded.settings
    if scope == "system":
        config_file = user_path(config).absolute() if config is not None else system_folders()[0]
    else:
        config_file = loaded.config_file if loaded.config_file != default_config_file() else None
    return ServiceSpec(
        command=launcher(),
        scope=scope,
        start=start,
        config_file=config_file,
        address=(_ip_address(settings.host, settings.port), settings.port),
        data_dir=settings.data_dir,
        models_dir=settings.models_dir,
        device_groups=_device_groups(),
        user=_account(scope),
        uid=os.getuid() if hasattr(os, "getuid") else 0,
        home=Path.home(),
        config_home=default_config_file().parent.parent,
    )


def launcher() -> tuple[str, ...]:
    """The command that starts jan-serve without this shell. Keeps the path of the script, which survives upgrades."""
    if getattr(sys, "frozen", False):
        return (sys.executable,)
    if Path(sys.argv[0]).name == NAME and (script := shutil.which(sys.argv[0])) is not None:
        return (str(Path(script).absolute()),)
    python = Path(sys.executable)
    windowless = python.with_name("pythonw.exe")
    # python.exe opens a console window at every logon.
    if sys.platform == "win32" and windowless.is_file():
        python = windowless
    return (str(python), "-P", "-m", "jan_serve")


def check_reachable(spec: ServiceSpec) -> None:
    """Raises CommandError unless the account of a machine's service can execute the program."""
    if spec.scope != "system" or os.name != "posix":
        return
    program = Path(spec.command[0])
    for path in (program, *program.parents):
        if not path.stat().st_mode & stat.S_IXOTH:
            raise WrongUse(
                f"the account of the service cannot execute {program}: {path} is closed to other users",
                f"Install {NAME} for all users, or use `{NAME} service install` without --system.",
            )


def _account(scope: Scope) -> str:
    """The account of the service. On macOS the service of a machine also runs as a user."""
    if scope == "system" and sys.platform == "darwin":
        user = os.environ.get("SUDO_USER", "")
        if not user:
            raise WrongUse(
                "the service must run as a user", f"Use `sudo {NAME} service install --system` as that user."
            )
        return user
    return getpass.getuser()


def _ip_address(host: str, port: int) -> str:
    """systemd and launchd take IP addresses, not host names."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise CommandError(f"host: unknown host name {host}: {error.strerror}") from None
    return str(min(found, key=lambda each: each[0] != socket.AF_INET)[4][0])


def _device_groups() -> tuple[str, ...]:
    if sys.platform == "win32":
        return ()
    import grp

    known = {group.gr_name for group in grp.getgrall()}
    return tuple(name for name in _DEVICE_GROUPS if name in known)

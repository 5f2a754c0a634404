"""Service specifications and installation plans, as values: `executor` executes plans."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Final, Literal, Protocol

import msgspec

NAME: Final = "jan-serve"
TITLE: Final = "jan-serve, a local LLM server"
STOP_MARGIN_S: Final = 15.0
"""Time to stop after the running requests end: for workers to exit and the last answers to be sent."""

Scope = Literal["user", "system"]
Start = Literal["at-login", "on-demand"]


class UnitFile(msgspec.Struct, frozen=True):
    """A file to write. keep: never replaced once it exists, since the user may edit it."""

    path: PurePath
    content: str
    encoding: str = "utf-8"
    keep: bool = False


class ServiceSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a service's unit files. Settings stay in the configuration file.

    command: starts jan-serve, without arguments. config_file: passed in the unit; None means the user's default file.
    address: host (an IP address) and port on which an on-demand service listens, as configured at installation.
    data_dir, models_dir: as configured. device_groups: groups with access to the machine's accelerators.
    user, uid, home, config_home: the user's account and folders.
    """

    command: tuple[str, ...]
    scope: Scope
    start: Start
    config_file: PurePath | None
    address: tuple[str, int]
    data_dir: PurePath
    models_dir: PurePath
    device_groups: tuple[str, ...] = ()
    user: str = ""
    uid: int = 0
    home: PurePath
    config_home: PurePath

    @property
    def run_command(self) -> tuple[str, ...]:
        """The command line that the service manager starts."""
        config = () if self.config_file is None else ("--config", str(self.config_file))
        return (*self.command, "service", "run", *config)

    def unless_chosen(self, config: UnitFile) -> tuple[UnitFile, ...]:
        """The initial configuration file, if this is a system service that uses its path."""
        return (config,) if self.scope == "system" and self.config_file == config.path else ()


class Command(msgspec.Struct, frozen=True):
    """A command line to run. may_fail: a failure is ignored."""

    words: tuple[str, ...]
    may_fail: bool = False


class ServicePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Steps, in this order: `before`, folders, `protect`, files, removed and withdrawn files, `after`.

    before: runs only if a file changes or is removed. protect: sets the rights of the folders, which must not be links.
    withdrawn: files to remove if still as installed, with their folder if it is then empty.
    """

    folders: tuple[PurePath, ...] = ()
    before: tuple[Command, ...] = ()
    protect: tuple[Command, ...] = ()
    files: tuple[UnitFile, ...] = ()
    removed: tuple[PurePath, ...] = ()
    withdrawn: tuple[UnitFile, ...] = ()
    after: tuple[Command, ...] = ()


class ServiceStatus(msgspec.Struct, frozen=True):
    """The state that the service manager reports. pid: of the front process, if it runs."""

    enabled: bool
    running: bool
    pid: int | None
    detail: str


class ServiceManager(Protocol):
    """One platform's service manager. Pure: methods return plans and commands."""

    name: str
    on_demand_mark: str | None
    """What a file of an installed service contains if it starts on demand; None if unsupported."""

    def install(self, spec: ServiceSpec) -> ServicePlan:
        """Install or update, enable and start. Executing the plan again changes nothing."""
        ...

    def uninstall(self, spec: ServiceSpec) -> ServicePlan:
        """Stop, disable and remove everything that `install` writes, for both kinds of start."""
        ...

    def control(
        self, spec: ServiceSpec, action: Literal["start", "stop", "restart"]
    ) -> Sequence[Command]: ...

    def query(self, spec: ServiceSpec) -> Command:
        """The command whose output `state` parses."""
        ...

    def state(self, status: int, output: str) -> ServiceStatus | None:
        """Parse the exit status and output of `query`; None if the service is not installed."""
        ...

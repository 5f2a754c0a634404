"""What a service is, and what has to happen on the machine for it. Values only: `machine` carries plans out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, Literal, Protocol

NAME: Final = "jan-serve"
TITLE: Final = "jan-serve, a local LLM server"

Scope = Literal["user", "system"]
Start = Literal["at-login", "on-demand"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec:
    """A service to be: everything that a unit says. Settings are not in it: they are in the configuration file.

    command: how jan-serve starts, without arguments. config_file: named in the unit; None is the user's own one.
    address: host (an IP address) and port to listen on for an on-demand service, as configured at this time.
    data_dir, models_dir: as configured. device_groups: groups of this machine that may use its accelerators.
    user: the account of the user, uid its number; home and config_home its folders.
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
        """What the service manager starts."""
        config = () if self.config_file is None else ("--config", str(self.config_file))
        return (*self.command, "service", "run", *config)


@dataclass(frozen=True, slots=True)
class UnitFile:
    """A file that is written whole. keep: it is the user's once it is there, and never replaced."""

    path: PurePath
    content: str
    encoding: str = "utf-8"
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A command line to run. may_fail: it ends something that may not be there."""

    words: tuple[str, ...]
    may_fail: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Steps in their order: `before`, folders, `protect`, files, removed files, `after`.

    before: only run where a file will change, or where files are removed. protect: sets the rights of the folders,
    which must be no links then. withdrawn: files that are removed where they
    are still as we wrote them, and their folder where it is empty then.
    """

    folders: tuple[PurePath, ...] = ()
    before: tuple[Command, ...] = ()
    protect: tuple[Command, ...] = ()
    files: tuple[UnitFile, ...] = ()
    removed: tuple[PurePath, ...] = ()
    withdrawn: tuple[UnitFile, ...] = ()
    after: tuple[Command, ...] = ()


@dataclass(frozen=True, slots=True)
class State:
    """What the service manager says. pid: of the front, where it runs."""

    enabled: bool
    running: bool
    pid: int | None
    detail: str


class ServiceManager(Protocol):
    """One platform's renderer. Pure: every method only says what has to be done."""

    name: str

    def install(self, spec: ServiceSpec) -> Plan:
        """Install or change, enable and start. Running the same plan twice changes nothing the second time."""
        ...

    def uninstall(self, spec: ServiceSpec) -> Plan:
        """Stop, disable and remove what `install` wrote, for both kinds of start."""
        ...

    def control(self, spec: ServiceSpec, action: Literal["start", "stop", "restart"]) -> Sequence[Command]:
        """Start, stop or restart an installed service."""
        ...

    def demand_mark(self, spec: ServiceSpec) -> tuple[PurePath, str] | None:
        """A file and a text in it that say that the installed service starts on demand; None: none here does."""
        ...

    def query(self, spec: ServiceSpec) -> Command:
        """A command whose output `state` reads."""
        ...

    def state(self, status: int, output: str) -> State | None:
        """What the output of `query` means; None where the service is not installed."""
        ...

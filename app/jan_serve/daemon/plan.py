"""Service specifications and installation plans, and their execution on this machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from typing import Final, Literal, Protocol

import msgspec

from jan_serve.store.files import write_atomically

NAME: Final = "jan-serve"
TITLE: Final = "jan-serve, a local LLM server"

Scope = Literal["user", "system"]
Start = Literal["at-login", "on-demand"]
Action = Literal["start", "stop", "restart"]


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
    data_dir, models_dir: as configured. device_groups: groups with access to the machine's accelerators. user, uid,
    home, config_home: the user's account and folders."""

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
    before: runs only if a file changes or is removed. protect: sets the rights of the folders, which must not be
    links. withdrawn: files to remove if still as installed, with their folder if it is then empty."""

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

    def control(self, spec: ServiceSpec, action: Action) -> Sequence[Command]: ...

    def query(self, spec: ServiceSpec) -> Command:
        """The command whose output `state` parses."""
        ...

    def state(self, status: int, output: str) -> ServiceStatus | None:
        """Parse the exit status and output of `query`; None if the service is not installed."""
        ...


_TIMEOUT_S: Final = 120.0
"""A start command waits until the server listens, a stop command until its requests end."""

_JUNCTION: Final = 0xA000_0003
"""IO_REPARSE_TAG_MOUNT_POINT."""


class ServiceFailed(Exception):
    """A step failed; the message names it and gives the reason."""


class CommandResult(msgspec.Struct, frozen=True):
    """output: standard output, or standard error if that is empty."""

    status: int
    output: str


Run = Callable[[Sequence[str]], CommandResult]


def run_command(words: Sequence[str]) -> CommandResult:
    """Run a command without a shell or input. Raises ServiceFailed if it cannot start or times out."""
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        raise ServiceFailed(f"{words[0]} is not installed on this machine") from None
    except subprocess.TimeoutExpired:
        raise ServiceFailed(f"`{' '.join(words)}` did not end within {_TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise ServiceFailed(f"`{words[0]}` cannot be run: {error.strerror}") from None
    output = done.stdout if done.stdout.strip() else done.stderr
    return CommandResult(done.returncode, output.decode(errors="replace"))


def apply(plan: ServicePlan, run: Run = run_command) -> list[Path]:
    """Execute a plan; returns the files written or removed. Raises ServiceFailed."""
    changed = [file for file in plan.files if _differs(file)]
    removed = [Path(path) for path in plan.removed if os.path.lexists(path)]
    withdrawn = [Path(file.path) for file in plan.withdrawn if _is_unchanged(file)]
    if any(not file.keep for file in changed) or removed:
        run_all(plan.before, run)
    try:
        for folder in plan.folders:
            Path(folder).mkdir(parents=True, exist_ok=True)
            # Any user can create a junction of Windows.
            junction = getattr(os.lstat(folder), "st_reparse_tag", 0) == _JUNCTION
            if plan.protect and (junction or os.path.islink(folder)):
                raise ServiceFailed(
                    f"{folder} is a link, and rights are not set through a link: set data_dir instead"
                )
        run_all(plan.protect, run)
        for file in changed:
            write_atomically(Path(file.path), _content(file), mode=0o644)
        for path in (*removed, *withdrawn):
            path.unlink(missing_ok=True)
        for path in withdrawn:
            with contextlib.suppress(OSError):  # not empty: it holds files of the user
                path.parent.rmdir()
    except OSError as error:
        raise ServiceFailed(f"cannot change {error.filename}: {error.strerror}") from None
    run_all(plan.after, run)
    return [*(Path(file.path) for file in changed), *removed, *withdrawn]


def run_all(commands: Sequence[Command], run: Run = run_command) -> None:
    """Run the commands in order. Raises ServiceFailed at the first failure without `may_fail`."""
    for command in commands:
        done = run(command.words)
        if done.status != 0 and not command.may_fail:
            reason = done.output.strip() or f"exit status {done.status}"
            raise ServiceFailed(f"`{' '.join(command.words)}` failed: {reason}")


def installed_files(plan: ServicePlan) -> list[Path]:
    """The files of an uninstall plan that exist."""
    return [Path(path) for path in plan.removed if os.path.lexists(path)]


def starts_on_demand(manager: ServiceManager, spec: ServiceSpec) -> bool:
    """Whether the installed service does, by its files."""
    for path in installed_files(manager.uninstall(spec)) if manager.on_demand_mark is not None else ():
        with contextlib.suppress(OSError):
            if str(manager.on_demand_mark) in path.read_text(encoding="utf-8", errors="replace"):
                return True
    return False


def _differs(file: UnitFile) -> bool:
    path = Path(file.path)
    if file.keep and path.exists():
        return False
    try:
        return path.read_bytes() != _content(file)
    except FileNotFoundError:
        return True
    except OSError as error:
        raise ServiceFailed(f"cannot read {path}: {error.strerror}") from None


def _is_unchanged(file: UnitFile) -> bool:
    try:
        return Path(file.path).read_bytes() == _content(file)
    except OSError:
        return False


def _content(file: UnitFile) -> bytes:
    text = file.content if file.encoding == "utf-8" else file.content.replace("\n", "\r\n")
    return text.encode(file.encoding)

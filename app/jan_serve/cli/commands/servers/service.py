"""`jan-serve service`: manages jan-serve as a background service, started at login or at the first request."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import psutil
import typer

from jan_serve import __version__
from jan_serve.cli.arguments import ConfigOption, JsonOption, option
from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.commands.logs import follow_lines, last_lines
from jan_serve.cli.commands.selfcheck import run_check
from jan_serve.cli.commands.servers.started import run
from jan_serve.cli.errors import CommandError, WrongUse
from jan_serve.cli.output import output, size_text
from jan_serve.cli.server.listen import AlreadyServing, listen
from jan_serve.cli.server.service_spec import check_reachable, service_manager, service_settings, service_spec
from jan_serve.config import LoadedSettings, server_address
from jan_serve.daemon.plan import (
    NAME,
    Scope,
    ServiceFailed,
    ServiceManager,
    ServicePlan,
    ServiceSpec,
    ServiceStatus,
    Start,
    apply,
    installed_files,
    run_all,
    run_command,
    starts_on_demand,
)
from jan_serve.resources import builtin_model
from jan_serve.store.measurements import SelfChecks

SystemOption = Annotated[
    bool, option("--system", "Manage the service of this machine instead of that of this user.")
]

_NOT_INSTALLED: Final = f"`{NAME} service install` installs it."
_ENVIRONMENT: Final = "JAN_SERVE_"


service_app = typer.Typer(help="Run jan-serve in the background.", no_args_is_help=True)
service_app.command("run", hidden=True)(run)


class Installation:
    """The service of one scope: its manager, settings and spec."""

    def __init__(self, system: bool, config: Path | None = None, start: Start | None = None) -> None:
        """start: None keeps the installed kind. Raises CommandError, SettingsError."""
        self.scope: Scope = "system" if system else "user"
        self.manager: ServiceManager = service_manager(self.scope)
        self.loaded: LoadedSettings = service_settings(self.scope, config)
        self.spec: ServiceSpec = service_spec(self.loaded, self.scope, start or "at-login", config)
        if start is None and starts_on_demand(self.manager, self.spec):
            self.spec = msgspec.structs.replace(self.spec, start="on-demand")

    @property
    def flag(self) -> str:
        """The flag of commands on this service."""
        return " --system" if self.scope == "system" else ""

    def state(self) -> ServiceStatus | None:
        """None if the service is not installed."""
        with _explained(self):
            done = run_command(self.manager.query(self.spec).words)
        return self.manager.state(done.status, done.output)

    def require_installed(self) -> ServiceStatus:
        """Raises CommandError if the service is not installed."""
        state = self.state()
        if state is None:
            raise CommandError(f"no {NAME} service is installed for this {self.owner}.", _NOT_INSTALLED)
        return state

    def require_rights(self) -> None:
        """Raises CommandError if this account cannot change the service."""
        if self.scope == "system" and hasattr(os, "geteuid") and os.geteuid() != 0:
            raise WrongUse(
                "only root can change the service of this machine.", "Put `sudo` before the command."
            )

    @property
    def owner(self) -> str:
        return "machine" if self.scope == "system" else "user"


@service_app.command()
def install(
    system: SystemOption = False,
    at_login: Annotated[
        bool, option("--at-login", "Start at login (--system: at boot). The default.")
    ] = False,
    on_demand: Annotated[
        bool, option("--on-demand", "Start at the first request to its port. Not on Windows.")
    ] = False,
    dry_run: Annotated[bool, option("--dry-run", "Show the files and commands without any change.")] = False,
    config: ConfigOption = None,
) -> None:
    """Install the service and start it. Repeat this after a change of host, port or folders in the settings."""
    if at_login and on_demand:
        raise WrongUse("--at-login and --on-demand exclude each other.")
    kind: Start = "on-demand" if on_demand else "at-login"
    installation = Installation(system, config, kind)
    _check_settings(installation)
    plan = installation.manager.install(installation.spec)
    if dry_run:
        _show(plan)
        return
    installation.require_rights()
    check_reachable(installation.spec)
    state = installation.state()
    if state is None or (not state.running and kind == "at-login"):
        _check_port(installation)
    with _explained(installation):
        changed = apply(plan)
    for path in changed:
        output.note(f"{'Wrote' if path.exists() else 'Removed'} {path}.")
    when = "starts at the first request" if on_demand else "runs now, and after every login"
    if installation.scope == "system" and not on_demand:
        when = "runs now, and after every boot"
    output.note(f"{NAME} {when}: {server_address(installation.loaded).url}")


@service_app.command()
def uninstall(system: SystemOption = False) -> None:
    """Stop the service and remove it. Settings, models and logs stay."""
    installation = Installation(system)
    installation.require_rights()
    plan = installation.manager.uninstall(installation.spec)
    if installation.state() is None and not installed_files(plan):
        output.note("No service is installed.")
        return
    with _explained(installation):
        changed = apply(plan)
    for path in changed:
        output.note(f"Removed {path}.")
    output.note("The service is removed. Settings, models and logs stay.")


@service_app.command()
def start(system: SystemOption = False) -> None:
    """Start the installed service."""
    _control("start", "started", system)


@service_app.command()
def stop(system: SystemOption = False) -> None:
    """Stop the service until the next login or `start`. Lets running requests finish."""
    _control("stop", "stopped", system)


@service_app.command()
def restart(system: SystemOption = False) -> None:
    """Restart the service, with changed settings and a new version. A new version first runs `jan-serve selfcheck`."""
    if not system:  # the data of the machine's service belongs to its account
        installation = Installation(system)
        installation.require_installed()
        _check_new_version(installation.loaded)
    _control("restart", "restarted", system)


def _check_new_version(loaded: LoadedSettings) -> None:
    """Compare a version that was not checked here with the last one. The service restarts whatever is found."""
    known = {check.version for check in SelfChecks(loaded.settings.data_dir).all()}
    if __version__ in known or builtin_model() is None:
        return
    try:
        check = run_check(loaded)
    except CommandError as error:
        output.warning(f"selfcheck: {error.message}")
        return
    for finding in check.findings:
        output.warning(f"selfcheck: {finding}")


def _control(action: Any, done: str, system: bool) -> None:
    installation = Installation(system)
    installation.require_rights()
    installation.require_installed()
    with _explained(installation):
        run_all(installation.manager.control(installation.spec, action))
    output.note(f"The service is {done}.")


@service_app.command()
def status(system: SystemOption = False, as_json: JsonOption = False) -> None:
    """Show whether the service is installed, runs and answers. The exit status is 1 if it does not run."""
    installation = Installation(system)
    state = installation.state()
    facts = _facts(installation, state)
    if as_json:
        output.json(facts)
    elif state is None:
        output.note(f"No {NAME} service is installed for this {installation.owner}. {_NOT_INSTALLED}")
    else:
        output.table(
            ("", f"{NAME} service"), [(name.replace("_", " "), _text(value)) for name, value in facts.items()]
        )
        if facts["version"] not in (None, __version__):
            output.note(
                f"Version {__version__} is installed: `{NAME} service restart{installation.flag}` starts it."
            )
    waits = state is not None and installation.spec.start == "on-demand"
    if state is None or not (state.running or waits):
        raise typer.Exit(1)


def _facts(installation: Installation, state: ServiceStatus | None) -> dict[str, Any]:
    settings = installation.loaded.settings
    health: dict[str, Any] = {}
    address = server_address(installation.loaded)
    if state is not None and state.running:
        with contextlib.suppress(CommandError), ServerClient(address) as client:
            health = client.get("/health")
    found = state or ServiceStatus(False, False, None, "not installed")
    pid = health.get("pid") or found.pid
    return {
        "installed": state is not None,
        "manager": installation.manager.name,
        "scope": installation.scope,
        "start": installation.spec.start if state is not None else None,
        "enabled": found.enabled,
        "running": found.running,
        "detail": found.detail,
        "pid": pid,
        "url": address.url,
        "health": health.get("state"),
        "version": health.get("version"),
        "uptime_s": health.get("uptime_s"),
        "memory_bytes": _memory(pid),
        "config_file": str(installation.loaded.config_file),
        "log_file": str(settings.log_file) if settings.log_file is not None else None,
    }


def _memory(pid: int | None) -> int | None:
    """Resident memory of the server and its child processes."""
    if pid is None:
        return None
    try:
        server = psutil.Process(pid)
        return sum(process.memory_info().rss for process in (server, *server.children(recursive=True)))
    except psutil.Error:
        return None


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and value > 1 << 20:
        return size_text(value)
    return "" if value is None else str(value)


@service_app.command()
def logs(
    follow: Annotated[bool, option("--follow -f", "Follow new lines until Ctrl-C.")] = False,
    lines: Annotated[int, option("--lines -n N", "Number of last lines.", min=0, max=100_000)] = 100,
    system: SystemOption = False,
) -> None:
    """Show the log file of the service, also if it does not run. It never contains prompts or answers."""
    path = Installation(system).loaded.settings.log_file
    if path is None:
        raise WrongUse("the settings disable the log file.", "Set log_file to a path, or remove it.")
    new_lines: Iterable[str] = ()
    try:
        if follow:
            last, new_lines = follow_lines(path, lines)
        else:
            last = last_lines(path, lines)
    except OSError as error:
        raise CommandError(
            f"cannot read {path}: {error.strerror}", "Put `sudo` before the command."
        ) from None
    if not last and not follow:
        output.note(f"{path} has no lines yet.")
    for line in itertools.chain(last, new_lines):
        output.data(line)


def _check_settings(installation: Installation) -> None:
    """Reject what a service does not support: environment variables, port 0, and on-demand start on Windows."""
    spec, origins = installation.spec, installation.loaded.origins
    if spec.start == "on-demand" and installation.manager.name.startswith(("Task", "Windows")):
        raise WrongUse(
            "Windows cannot start a program for a connection.",
            "Use --at-login: an idle server uses no CPU time.",
        )
    if installation.loaded.settings.port == 0:
        raise WrongUse("port: a service needs a fixed port, not 0.")
    from_environment = [name for name, origin in origins.items() if origin.startswith(_ENVIRONMENT)]
    if from_environment:
        raise WrongUse(
            f"{', '.join(origins[name] for name in from_environment)}: the service has no variables of this shell.",
            f"Write {', '.join(from_environment)} into {installation.loaded.config_file}, and unset the variable.",
        )


def _check_port(installation: Installation) -> None:
    """Raises CommandError if another program uses the port, before the service fails on it."""
    settings = installation.loaded.settings
    try:
        listen(settings.host, settings.port).close()
    except AlreadyServing as running:
        raise CommandError(f"jan-serve is {running}.", "Stop it first: the service needs its port.") from None


def _show(plan: ServicePlan) -> None:
    for command in plan.protect:
        output.data(" ".join(command.words))
    for file in plan.files:
        output.data(f"# {file.path}{' (only if it does not exist)' if file.keep else ''}")
        output.raw(file.content)
    for command in plan.after:
        output.data(" ".join(command.words))


@contextlib.contextmanager
def _explained(installation: Installation) -> Generator[None]:
    try:
        yield
    except ServiceFailed as error:
        logs_command = f"`{NAME} service logs{installation.flag}` shows the log."
        raise CommandError(str(error), logs_command) from None

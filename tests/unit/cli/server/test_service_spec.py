"""The service of this machine: its command, account and settings."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

from jan_serve.cli.commands.servers.service import Installation
from jan_serve.cli.errors import CommandError
from jan_serve.cli.server import service_spec as module
from jan_serve.cli.server.service_spec import (
    check_reachable,
    launcher,
    service_manager,
    service_settings,
    service_spec,
)
from jan_serve.config import load_settings
from jan_serve.daemon.plan import ServiceSpec
from jan_serve.errors import SettingsError

posix_only = pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty configuration file, used by default."""
    path = tmp_path / "config.toml"
    path.write_text("")
    monkeypatch.setenv("JAN_SERVE_CONFIG", str(path))
    return path


def test_unreadable_settings_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise PermissionError(errno.EACCES, "Access is denied")

    monkeypatch.setattr(module, "system_folders", lambda: (tmp_path / "config.toml", tmp_path))
    monkeypatch.setattr(Path, "is_file", refuse)
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(SettingsError, match=r"config.toml: Access is denied"):
        service_settings("system", None)


@posix_only
def test_the_script_keeps_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versioned = tmp_path / "cellar" / "1.0" / "jan-serve"
    versioned.parent.mkdir(parents=True)
    versioned.write_text("#!/bin/sh\n")
    versioned.chmod(0o755)
    link = tmp_path / "bin" / "jan-serve"
    link.parent.mkdir()
    link.symlink_to(versioned)
    monkeypatch.setattr(sys, "argv", [str(link)])
    # The link, not its target: an upgrade moves the target.
    assert launcher() == (str(link),)
    monkeypatch.setenv("PATH", str(link.parent))
    monkeypatch.setattr(sys, "argv", ["jan-serve"])
    assert launcher() == (str(link),)


def test_a_module_and_a_frozen_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/jan_serve/__main__.py"])
    assert launcher() == (sys.executable, "-P", "-m", "jan_serve")
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert launcher() == (sys.executable,)


def spec_of(config: Path, *, system: bool = False) -> ServiceSpec:
    """The spec with the settings of this file."""
    loaded = load_settings(config_file=config)
    return service_spec(loaded, "system" if system else "user", "on-demand", config if system else None)


def test_names_become_addresses(config: Path) -> None:
    config.write_text('host = "localhost"\nport = 4000\n')
    assert spec_of(config).address in (("127.0.0.1", 4000), ("::1", 4000))
    config.write_text('host = "no-such-host.invalid"\nno_auth = true\n')
    with pytest.raises(CommandError, match=r"unknown host name no-such-host\.invalid"):
        spec_of(config)


def test_the_unit_names_another_configuration_file(config: Path) -> None:
    assert spec_of(config).config_file == config
    assert spec_of(config).run_command[-4:] == ("service", "run", "--config", str(config))


@posix_only
def test_the_account_of_a_service_must_execute_the_program(tmp_path: Path, config: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    program = closed / "jan-serve"
    program.write_text("")
    program.chmod(0o755)
    spec = spec_of(config, system=True)
    with pytest.raises(CommandError, match="closed to other users"):
        check_reachable(msgspec.structs.replace(spec, command=(str(program),)))
    check_reachable(spec_of(config))


def test_a_machine_service_has_another_configuration_file(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text("port = 4000\n")
    folders = (tmp_path / "etc" / "config.toml", tmp_path / "var")
    monkeypatch.setattr(module, "system_folders", lambda: folders)
    settings = service_settings("system", None).settings
    assert (settings.port, settings.data_dir) == (1337, folders[1])
    folders[0].parent.mkdir()
    folders[0].write_text('port = 5000\ndata_dir = "d"\n')
    settings = service_settings("system", None).settings
    assert (settings.port, settings.data_dir) == (5000, folders[0].parent / "d")
    assert service_settings("user", None).settings.port == 4000


@pytest.mark.parametrize(
    ("platform", "scope", "name"),
    [
        ("darwin", "user", "launchd"),
        ("darwin", "system", "launchd"),
        ("win32", "user", "Task Scheduler"),
        ("win32", "system", "Windows services"),
    ],
)
def test_every_platform_has_its_manager(
    platform: str, scope: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert service_manager("system" if scope == "system" else "user").name == name


@pytest.mark.skipif(sys.platform != "linux", reason="systemd is Linux's")
def test_only_root_changes_the_machine_service(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def found(name: str) -> str:
        return f"/usr/bin/{name}"

    monkeypatch.setattr("shutil.which", found)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(CommandError, match="only root can") as caught:
        Installation(system=True, config=config).require_rights()
    assert "sudo" in (caught.value.next_step or "")
    Installation(system=False, config=config).require_rights()

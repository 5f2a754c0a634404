"""What the command line imports. Counts have no noise, so these tests keep the start short."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import typer.main

from jan_serve.cli.app import COMMANDS, build_app

_SHOW = """
import json, sys
sys.argv = ["jan-serve", *sys.argv[1:]]
from jan_serve.__main__ import main
main()
print()
print(json.dumps(sorted(sys.modules)))
"""
_BUILD = """
import json, sys
from jan_serve.cli.app import build_app
build_app([sys.argv[1]])
print(json.dumps(sorted(sys.modules)))
"""


def _loaded_by(program: str, argument: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", program, argument], capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("command", "module"),
    [("ps", "models.loaded"), ("load", "models.loaded"), ("stop", "models.loaded"), ("logs", "logs")],
)
def test_commands_that_ask_a_server(command: str, module: str) -> None:
    loaded = _loaded_by(_BUILD, command)
    assert f"jan_serve.cli.commands.{module}" in loaded
    heavy = {"fastapi", "httpx2", "prompt_toolkit", "llama_cpp", "numpy", "ruamel", "jan_serve.supervisor"}
    assert not loaded & heavy


@pytest.mark.parametrize("command", ["ls", "pull", "import", "config", "doctor"])
def test_commands_that_look_at_no_template(command: str) -> None:
    loaded = _loaded_by(_BUILD, command)
    assert "jan_serve.wiring.parts" in loaded
    assert not loaded & {"jan_serve.chat.detect", "fastapi", "jinja2", "llama_cpp"}


@pytest.mark.parametrize("command", ["ls", "use", "rm"])
def test_commands_on_the_models_folder_look_at_no_device(command: str) -> None:
    loaded = _loaded_by(_BUILD, command)
    assert "jan_serve.cli.commands.models.local" in loaded
    assert not loaded & {"psutil", "jan_serve.cli.server.hardware", "jan_serve.placement.device_plan"}


def test_a_list_of_nodes_needs_no_proxy() -> None:
    loaded = _loaded_by(_BUILD, "nodes")
    assert "jan_serve.cli.commands.servers.nodes" in loaded
    assert not loaded & {"psutil", "jan_serve.proxy", "jan_serve.http"}


def test_a_server_starts_without_what_reads_variables() -> None:
    loaded = _loaded_by(_BUILD, "serve")
    assert "jan_serve.config.settings_loader" in loaded
    assert not loaded & {"pydantic_settings", "dotenv", "argparse", "fastapi", "httpx2", "llama_cpp", "numpy"}


_NEEDLESS = {
    "--version": {"asyncio", "typer", "rich", "jan_serve.cli.output", "jan_serve.config"},
    "--help": {
        "asyncio",
        "pydantic",
        "jan_serve.config",
        "jan_serve.store",
        "jan_serve.cli.commands.servers.serve",
    },
}


@pytest.mark.parametrize("flag", _NEEDLESS)
def test_flags_of_the_program(flag: str) -> None:
    loaded = _loaded_by(_SHOW, flag)
    assert "jan_serve.cli.main" in loaded
    assert not loaded & _NEEDLESS[flag]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_has_the_start_of_their_help(name: str) -> None:
    summaries: Any = typer.main.get_command(build_app(summaries=True))
    command: Any = typer.main.get_command(build_app([name]))
    if hasattr(command, "commands"):
        command = command.commands[name]
    assert command.help.split("\n\n")[0] == summaries.commands[name].help

"""The command that a proxy shows for servers that may join it."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from jan_serve.cli.commands.servers.nodes import join_line, own_address
from jan_serve.cli.commands.servers.proxy import join_lines
from jan_serve.config import load_settings
from jan_serve.proxy.settings import ProxySettings

LAN = "http://192.168.1.5:8000"


def shown(url: str, **fields: Any) -> list[str]:
    return join_lines(ProxySettings(**fields), url)


def settings_of(line: str) -> Any:
    """What `serve` would make of the command. Raises SettingsError."""
    name = ""
    words = shlex.split(line.partition("jan-serve serve ")[2])
    flags: dict[str, Any] = {}
    for word in words:
        if word.startswith("--"):
            name = word[2:].replace("-", "_")
            flags[name] = True
        else:
            flags[name] = word
    if "api_key" in flags:
        flags["api_keys"] = [flags.pop("api_key")]
    return load_settings(flags).settings


def test_a_proxy_on_loopback_takes_servers_of_this_machine() -> None:
    line = join_line("http://127.0.0.1:8000", proxy_key=False, node_key=False)
    assert line == "On this machine: jan-serve serve --proxy-url http://127.0.0.1:8000"
    for keys in ({"api_keys": ("k",)}, {"node_key": "n"}, {"api_keys": ("k",), "node_key": "n"}):
        line = shown("http://127.0.0.1:8000", **keys)[0]
        assert line == "On this machine: jan-serve serve --api-key NODE_KEY --proxy-url http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("fields", "flags"),
    [
        ({}, f"--host 0.0.0.0 --no-auth --proxy-url {LAN}"),
        ({"api_keys": ("k",), "node_key": "n"}, f"--host 0.0.0.0 --api-key NODE_KEY --proxy-url {LAN}"),
        (
            {"api_keys": ("k",), "node_key": "n", "management_keys": ("m",)},
            f"--host 0.0.0.0 --api-key NODE_KEY --proxy-url {LAN} --proxy-key PROXY_KEY",
        ),
    ],
)
def test_other_machines_get_the_keys_that_they_need(fields: dict[str, Any], flags: str) -> None:
    lines = shown(LAN, host="192.168.1.5", **fields)
    assert lines[0] == f"On another machine: jan-serve serve {flags}"
    assert settings_of(lines[0]).proxy_url == LAN


def test_a_proxy_without_a_node_key_says_that_servers_elsewhere_need_one() -> None:
    lines = shown(LAN, host="192.168.1.5", api_keys=("k",))
    assert "--api-key NODE_KEY" in lines[0]
    assert "--node-key NODE_KEY" in lines[1]


def test_the_address_of_this_machine_stands_for_all_addresses() -> None:
    line = shown("http://127.0.0.1:8000", host="0.0.0.0")[0]
    assert f"--proxy-url http://{own_address()}:8000" in line

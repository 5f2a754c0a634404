"""`run --mcp`: the tools of real MCP servers in an answer and in a chat, over fake engines."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from jan_serve.cli.chat import exchange
from jan_serve.cli.chat.chat_tools import DECLINED
from tests.support.servers.mcp_server import LIES, entry
from tests.support.servers.served_app import ServedApp
from tests.support.terminal import CTRL_C, CTRL_D, terminal
from tests.unit.cli.conftest import Run

ADD = '!call test__add {"a": 2, "b": 3}'
LIMIT_S = 60.0


def write(config: Path, **entries: Any) -> None:
    folder = config.parent / "data"
    folder.mkdir(exist_ok=True)
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": entries}))


def test_a_tool_that_is_allowed_is_called(ask: Run, own_settings: Path) -> None:
    write(own_settings, test=entry("lies"))
    answer = ask("run", "alpha", "--allow-tool", "test__add", ADD)
    assert (answer.status, answer.out) == (0, "5\n")
    lines = answer.err.splitlines()
    assert lines[0] == "MCP server test: 1 tools"
    assert lines[1:-2] == [line for line in lines if line.startswith("warning: the tool ")]
    assert len(lines) == 3 + len(LIES)
    assert lines[-2:] == ['call test__add {"a": 2, "b": 3}', "  5"]


def test_json_has_the_last_answer(ask: Run, own_settings: Path) -> None:
    write(own_settings, test=entry())
    answer = json.loads(ask("run", "alpha", "--json", "--allow-tool", "all", ADD).out)
    assert (answer["text"], answer["finish_reason"]) == ("5", "stop")


def test_without_a_terminal_nothing_is_called_that_is_not_allowed(ask: Run, own_settings: Path) -> None:
    write(own_settings, test=entry())
    answer = ask("run", "alpha", "--mcp", ADD)
    assert answer.out == f"{DECLINED}\n"
    assert "not called: there is no terminal to ask, and no --allow-tool test__add" in answer.err


def test_a_picture_is_saved_for_the_user_and_sent_to_the_model(ask: Run, own_settings: Path) -> None:
    write(own_settings, test=entry())
    answer = ask("run", "alpha", "--allow-tool", "all", "!call test__picture {}")
    assert answer.out == "(The tool gave an image here, and this model reads text only.)\n"
    shown = re.search(r"picture: (\S+\.png)", answer.err)
    assert shown is not None
    assert Path(shown[1]).read_bytes().startswith(b"\x89PNG")
    Path(shown[1]).unlink()


def test_broken_servers_are_lines(ask: Run, own_settings: Path) -> None:
    write(own_settings, ends=entry("ends"), none={"command": "no-such-program"}, test=entry())
    answer = ask("run", "alpha", "--allow-tool", "all", "!call test__die {}")
    assert answer.err.splitlines() == [
        "warning: the MCP server ends ended (exit status 1): no database here",
        "warning: the MCP server none failed: there is no program no-such-program",
        "MCP server test: 12 tools",
        "call test__die {}",
        "  The MCP server test ended (exit status 1): out of memory.",
    ]
    assert (answer.status, answer.out) == (0, "The MCP server test ended (exit status 1): out of memory.\n")


def test_a_model_that_calls_for_ever_has_to_answer(
    ask: Run, own_settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "MAX_ROUNDS", 2)
    write(own_settings, test=entry())
    call = '<tool_call>{"name": "test__add", "arguments": {"a": 1, "b": 1}}</tool_call>'
    answer = ask("run", "alpha", "--allow-tool", "all", f"!say {json.dumps(call)}")
    assert answer.err.count("call test__add") == 2
    assert answer.out.strip() == call


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "names no MCP servers"),
        ("{}", "must be an object whose mcpServers"),
        ('{"mcpServers": {"a": {}}}', "mcpServers.a: needs either a command or a url"),
    ],
)
def test_a_file_without_servers(ask: Run, own_settings: Path, content: str | None, message: str) -> None:
    if content is not None:
        write(own_settings)
        (own_settings.parent / "data" / "mcp.json").write_text(content)
    answer = ask("run", "alpha", "--mcp", "hi")
    assert (answer.status, answer.out) == (2, "")
    assert message in answer.err


def test_the_package_may_be_missing(ask: Run, own_settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(own_settings, test=entry())
    monkeypatch.delitem(sys.modules, "jan_serve.mcp.sessions", raising=False)
    monkeypatch.setitem(sys.modules, "mcp", None)
    answer = ask("run", "alpha", "--mcp", "hi")
    assert answer.status == 2
    assert "pip install 'jan-serve[mcp]'" in answer.err


@pytest.mark.skipif(os.name != "posix", reason="needs terminals")
def test_a_chat_asks_before_each_call(server: ServedApp, own_settings: Path, tmp_path: Path) -> None:
    write(own_settings, test=entry())
    command = [sys.executable, "-P", "-m", "jan_serve", "run", "alpha", "--mcp", "--url", server.url]
    with terminal(command, {"JAN_SERVE_CONFIG": str(own_settings)}, tmp_path) as shown:
        shown.see("MCP server test: 12 tools", limit_s=LIMIT_S)
        shown.see_prompt(">>>")
        shown.type(f"{ADD}\r")
        shown.see("Call it? yes, no, or always in this chat [yes]:", limit_s=LIMIT_S)
        shown.type("n\r")
        shown.see(DECLINED, limit_s=LIMIT_S)
        shown.see_prompt(">>>")
        shown.type("/clear\r")
        shown.see_prompt(">>>")
        shown.type(f"{ADD}\r")
        shown.see("Call it?", times=2, limit_s=LIMIT_S)
        shown.type("always\r")
        shown.see("\n5\n", limit_s=LIMIT_S)
        shown.see_prompt(">>>")
        shown.type("/tools\r")
        shown.see("test__add (allowed): Adds two numbers.", limit_s=LIMIT_S)
        shown.see_prompt(">>>")
        shown.type("/clear\r")
        shown.see_prompt(">>>")
        shown.type("!call test__wait {}\r")
        shown.see("Call it?", times=3, limit_s=LIMIT_S)
        shown.type("\r")
        shown.type(CTRL_C)
        shown.see("Stopped.", limit_s=LIMIT_S)
        shown.see_prompt(">>>")
        shown.type(CTRL_D)
        assert shown.end(LIMIT_S) == 0
    assert shown.text.count("Call it?") == 3

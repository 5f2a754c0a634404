"""Commands as processes, against real servers with the built-in model."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from jan_serve.resources import builtin_model
from tests.support.deadline import deadline
from tests.support.processes import alive, wait_until
from tests.support.servers.managed import add_model
from tests.support.servers.served import Served, running
from tests.support.terminal import ALT_ENTER, CTRL_C, CTRL_D, TAB, UP, Terminal, terminal

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(builtin_model() is None, reason="there is no built-in model"),
    pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals and terminals"),
]

_COMMAND = [sys.executable, "-P", "-m", "jan_serve"]
_LIMIT_S = 60


@dataclass(frozen=True)
class Home:
    """A user with a folder, its configuration and maybe a running server."""

    folder: Path
    server: Served | None

    def variables(self) -> dict[str, str]:
        return {"JAN_SERVE_CONFIG": str(self.folder / "config.toml")}

    def start(self, *words: str) -> subprocess.Popen[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("JAN_SERVE_")}
        return subprocess.Popen(
            [*_COMMAND, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**environment, **self.variables()},
            cwd=self.folder,
            text=True,
        )

    def run(self, *words: str, stdin: str = "") -> tuple[int, str, str]:
        """Exit status, standard output and standard error."""
        with self.start(*words) as process:
            out, err = process.communicate(stdin, timeout=_LIMIT_S)
        return process.returncode, out, err


def settled(folder: Path, port: int) -> None:
    (folder / "config.toml").write_text(
        f'data_dir = "data"\nport = {port}\nthreads = 1\nn_ctx = 16384\nparallel = 2\n'
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Generator[Home]:
    """With a running server on the configured port."""
    folder = tmp_path_factory.mktemp("home")
    settled(folder, 0)
    config = str(folder / "config.toml")
    with running(folder, [*_COMMAND, "serve"], {"JAN_SERVE_CONFIG": config}) as server:
        settled(folder, int(server.url().rsplit(":", 1)[1]))
        yield Home(folder, server)


@pytest.fixture
def lonely(tmp_path: Path) -> Home:
    """Without a server: nothing listens on port 1."""
    settled(tmp_path, 1)
    return Home(tmp_path, None)


def test_a_prompt_through_a_pipe(home: Home) -> None:
    status, out, err = home.run("run", "jan-tiny", "--set", "temperature=0", stdin="Hello, who are you?\n")
    assert (status, err) == (0, "")
    assert "jan-tiny" in out
    status, out, _ = home.run("run", "jan-tiny", "--json", "Hello, who are you?")
    assert status == 0
    assert json.loads(out)["finish_reason"] == "stop"


def test_an_answer_under_a_schema(home: Home) -> None:
    file = home.folder / "schema.json"
    schema = {"type": "object", "properties": {"name": {"enum": ["Ann", "Bob"]}}, "required": ["name"]}
    file.write_text(json.dumps(schema | {"additionalProperties": False}))
    status, out, _ = home.run("run", "jan-tiny", "--format", "schema.json", "Who?")
    assert status == 0
    assert json.loads(out)["name"] in ("Ann", "Bob")


def test_what_is_in_memory(home: Home) -> None:
    assert home.run("load", "jan-tiny")[0] == 0
    status, out, err = home.run("ps")
    assert status == 0
    assert "jan-tiny" in out and "loaded" in out
    assert "ready" in err
    assert home.run("stop", "--all") == (0, "", "jan-tiny is unloaded.\n")


def test_tokens_and_vectors(home: Home) -> None:
    status, out, _ = home.run("tokenize", "jan-tiny", "--count", "Hello there")
    assert status == 0
    assert 1 <= int(out) <= 11
    ids = [
        token["id"] for token in json.loads(home.run("tokenize", "jan-tiny", "--json", "Hello")[1])["tokens"]
    ]
    assert home.run("tokenize", "jan-tiny", "--decode", *map(str, ids))[1] == "Hello\n"
    status, out, _ = home.run("embed", "jan-tiny", "--lines", stdin="one\ntwo\n")
    assert status == 0
    assert len(out.splitlines()) == 2


def test_the_log(home: Home) -> None:
    home.run("load", "jan-tiny")
    status, out, err = home.run("logs", "--json")
    assert (status, err) == (0, "")
    assert any("POST /models/load" in json.loads(line)["message"] for line in out.splitlines())
    with home.start("logs", "--follow", "-n", "0") as follower:
        assert follower.stdout is not None
        with deadline(follower):
            # The follower does not receive earlier lines.
            while not select.select([follower.stdout], [], [], 0)[0]:
                home.run("tokenize", "jan-tiny", "--count", "x")
            assert "jan_serve" in follower.stdout.readline()
        follower.send_signal(signal.SIGINT)
        _, err = follower.communicate(timeout=_LIMIT_S)
    assert follower.returncode == 130
    assert "Traceback" not in err


def test_ctrl_c_stops_an_answer(home: Home) -> None:
    words = ("run", "jan-tiny", "--set", "min_tokens=900", "--set", "max_tokens=900", "Tell me a story.")
    with home.start(*words) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        with deadline(process):
            assert process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        process.stdin = None
        _, err = process.communicate(timeout=_LIMIT_S)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert home.server is not None
    server = home.server
    wait_until(lambda: "cancelled=True" in server.log)


def test_a_reader_that_leaves(home: Home) -> None:
    words = ("run", "jan-tiny", "--set", "min_tokens=500", "--set", "max_tokens=500", "Tell me a story.")
    with home.start(*words) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.close()
        with deadline(process):
            assert process.stdout.read(1)
            process.stdout.close()
            err = process.stderr.read()
        assert process.wait(_LIMIT_S) == 1
    assert err == ""


def test_a_server_of_its_own(lonely: Home) -> None:
    status, out, err = lonely.run("run", "jan-tiny", "--set", "temperature=0", "Hello, who are you?")
    assert status == 0
    assert "jan-tiny" in out
    assert err == "No server runs: starting one for this command.\n"


def test_a_server_of_its_own_where_the_configured_port_is_any_free_one(lonely: Home) -> None:
    settled(lonely.folder, 0)
    status, out, err = lonely.run("tokenize", "jan-tiny", "--count", "Hello")
    assert (status, err) == (0, "No server runs: starting one for this command.\n")
    assert int(out) >= 1
    status, _, err = lonely.run("ps")
    assert status == 2 and "--url says where the server is" in err


def test_a_server_of_its_own_for_a_file(lonely: Home) -> None:
    builtin = builtin_model()
    assert builtin is not None
    (lonely.folder / "mine.gguf").symlink_to(builtin)
    status, out, err = lonely.run("run", "mine.gguf", "--json", "Hello")
    assert status == 0
    assert json.loads(out)["model"] == "mine"
    assert err == "Starting a server for mine.gguf.\n"


def test_a_server_of_its_own_that_fails_shows_its_log(lonely: Home) -> None:
    add_model(lonely.folder, "empty")  # a header without tensors, which llama.cpp does not load
    status, out, err = lonely.run("run", "empty.gguf", "Hello")
    assert (status, out) == (1, "")
    assert "jan_serve.supervisor" in err
    assert err.index("jan_serve.supervisor") < err.index("error: ")


def test_its_own_server_ends_with_it(lonely: Home) -> None:
    with lonely.start("run", "jan-tiny") as process:
        # It waits for the end of its input.
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write("Tell me a story.")
        process.stdin.close()
        process.stdin = None
        with deadline(process):
            assert process.stderr.readline().startswith("No server runs")
        wait_until(lambda: bool(psutil.Process(process.pid).children()))
        started = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.communicate(timeout=_LIMIT_S)
    wait_until(lambda: not any(alive(child.pid) for child in started))


@pytest.fixture
def chat(home: Home) -> Generator[Terminal]:
    """An interactive chat that is ready for input."""
    with terminal([*_COMMAND, "run", "jan-tiny"], home.variables(), home.folder) as shown:
        shown.see("/help lists the commands")
        shown.see_prompt(">>>")
        yield shown


def test_a_chat_in_a_terminal(chat: Terminal, home: Home) -> None:
    chat.type("/set temperature 0\r")
    chat.see("temperature = 0")
    chat.type("Hello, who are you?\r")
    chat.see("I am jan-tiny")
    chat.type('"""two\rlines"""\r')
    chat.see("...")
    chat.type("/stats\r")
    chat.see("prompt tokens")
    chat.see_prompt(">>>")
    chat.type(f"/mod{TAB}s\r")
    chat.see("  jan-tiny\n")
    chat.see_prompt(">>>")
    chat.type(CTRL_D)
    assert chat.end() == 0
    assert "Traceback" not in chat.text
    history = home.folder / "data" / "chat-history"
    assert history.stat().st_mode & 0o077 == 0
    assert "+Hello, who are you?" in history.read_text()


def test_the_arrow_key_brings_back_a_line_of_an_earlier_chat(home: Home) -> None:
    for first in (True, False):
        with terminal([*_COMMAND, "run", "jan-tiny"], home.variables(), home.folder) as shown:
            shown.see_prompt(">>>")
            if first:
                shown.type("/system An unusual line.\r")
                shown.see("The system message is set.")
            else:
                shown.type(UP)
                shown.see("/system An unusual line.")
                shown.type(CTRL_C)
            shown.see_prompt(">>>")
            shown.type(CTRL_D)
            assert shown.end() == 0


def test_ctrl_c_in_a_chat(chat: Terminal) -> None:
    chat.type("half a line")
    chat.see("half a line")
    chat.type(CTRL_C)
    chat.see("Ctrl-D or /bye leaves.")
    chat.see_prompt(">>>")
    chat.type("/set min_tokens 15000\r/set max_tokens 15000\r")
    chat.see("max_tokens = 15000")
    chat.see_prompt(">>>")
    written = len(chat.text)
    chat.type(f"Tell{ALT_ENTER}me a story.\r")
    wait_until(lambda: len(chat.text) > written + 200)
    chat.type(CTRL_C)
    chat.see("Stopped.")
    chat.see_prompt(">>>")
    chat.type("/bye\r")
    assert chat.end() == 0
    assert "Traceback" not in chat.text


def test_a_loading_bar_and_colours_are_for_terminals_only(home: Home) -> None:
    with terminal([*_COMMAND, "ps"], home.variables(), home.folder, columns=40) as shown:
        assert shown.end() == 0
    assert "\x1b[" in shown.raw
    with terminal([*_COMMAND, "ps"], {**home.variables(), "NO_COLOR": "1"}, home.folder) as shown:
        assert shown.end() == 0
    assert "\x1b[3" not in shown.raw

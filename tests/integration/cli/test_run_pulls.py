"""`run` with a model of the catalogue that is not here: on a terminal it offers the download and goes on."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from jan_serve.resources import builtin_model, catalogue_file
from jan_serve.store.hub.references import Catalogue
from tests.support.servers.fake_hub import FakeHub, FakeRepo, running_hub
from tests.support.servers.served import serving
from tests.support.terminal import CTRL_C, CTRL_D, Terminal, terminal

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(builtin_model() is None, reason="there is no built-in model"),
    pytest.mark.skipif(os.name != "posix", reason="needs terminals"),
]

NAME = "qwen3-4b"
QUESTION = f"{NAME} is not here (2.5 GB). Download it? [Y/n]: "
LIMIT_S = 120.0


@pytest.fixture
def hub() -> Generator[FakeHub]:
    model, entry = builtin_model(), Catalogue.read(catalogue_file()).find(NAME)
    assert model is not None and entry is not None
    with running_hub() as hub:
        hub.repos[entry.repo] = FakeRepo({entry.file: model.read_bytes()})
        yield hub


@pytest.fixture(params=["a running server", "its own server"])
def folder(request: pytest.FixtureRequest, hub: FakeHub, tmp_path: Path) -> Generator[Path]:
    config = tmp_path / "config.toml"
    text = f'data_dir = "data"\nhf_endpoint = "{hub.url}"\nthreads = 1\nport = '
    config.write_text(f"{text}{1 if request.param == 'its own server' else 0}\n")
    if request.param == "its own server":
        yield tmp_path
        return
    with serving(tmp_path) as server:
        config.write_text(f"{text}{server.url(LIMIT_S).rpartition(':')[2]}\n")
        yield tmp_path


def run(folder: Path, *words: str) -> tuple[list[str], dict[str, str], Path]:
    command = [sys.executable, "-P", "-m", "jan_serve", "run", NAME, *words]
    return command, {"JAN_SERVE_CONFIG": str(folder / "config.toml")}, folder


def asked(shown: Terminal) -> None:
    shown.see(QUESTION.strip(), limit_s=LIMIT_S)


def test_the_download_goes_on_into_the_chat(folder: Path) -> None:
    with terminal(*run(folder)) as shown:
        asked(shown)
        shown.type("\r")
        shown.see("/help lists the commands", limit_s=LIMIT_S)
        shown.see_prompt(">>>")
        shown.type(CTRL_D)
        assert shown.end(LIMIT_S) == 0
    with terminal(*run(folder, "Hello, who are you?")) as shown:
        assert shown.end(LIMIT_S) == 0
    assert "Download" not in shown.text and "jan-tiny" in shown.text


@pytest.mark.parametrize(
    ("keys", "status", "words"),
    [
        ("n\r", 2, f"`jan-serve pull {NAME}` downloads it."),
        (CTRL_C, 1, "Aborted"),
    ],
)
def test_a_download_that_is_not_wanted(
    folder: Path, hub: FakeHub, keys: str, status: int, words: str
) -> None:
    with terminal(*run(folder)) as shown:
        asked(shown)
        for _ in range(12):  # Python's reading of a line misses a signal that comes just before it waits
            shown.type(keys)
            with contextlib.suppress(subprocess.TimeoutExpired):
                assert shown.end(10) == status
                break
    assert shown.process.returncode == status
    assert words in shown.text
    assert hub.asked("Qwen") == []


def test_a_download_that_fails(folder: Path, hub: FakeHub) -> None:
    hub.repos.clear()
    with terminal(*run(folder)) as shown:
        asked(shown)
        shown.type("y\r")
        assert shown.end(LIMIT_S) == 2
    assert "Qwen3-4B-GGUF" in shown.text and "Traceback" not in shown.text

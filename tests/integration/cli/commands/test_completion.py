"""Completion with the Tab key in shells."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers.managed import add_model
from tests.support.terminal import TAB, terminal
from tests.unit.cli.conftest import Run


@pytest.fixture
def models(own_settings: Path) -> Path:
    """The models folder of the test's settings, with one model and one whose name a shell would run."""
    folder = own_settings.parent / "data" / "models"
    add_model(folder, "my-model")
    add_model(folder, "$(reboot)")
    return folder


_CLEAR_LINE = "\x15"
BASH = """
source "$1"
press() {
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
    _jan_serve_completion jan-serve
    echo "${COMPREPLY[*]}"
}
press jan-serve tok
press jan-serve run my
press jan-serve tokenize --co
"""


@pytest.fixture
def program(tmp_path: Path) -> dict[str, str]:
    """An environment in which `jan-serve` is this program."""
    file = tmp_path / "bin" / "jan-serve"
    file.parent.mkdir()
    file.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m jan_serve "$@"\n')
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return {**os.environ, "PATH": f"{file.parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_in_bash(run: Run, models: Path, tmp_path: Path, program: dict[str, str]) -> None:
    script = tmp_path / "jan-serve.bash"
    script.write_text(run("completion", "bash").out)
    done = subprocess.run(
        ["bash", "--norc", "-c", BASH, "bash", str(script)],
        env=program,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.splitlines() == ["tokenize", "my-model", "--count --config"]
    assert done.stderr == ""


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
def test_in_fish(run: Run, models: Path, tmp_path: Path, program: dict[str, str]) -> None:
    script = tmp_path / "jan-serve.fish"
    script.write_text(run("completion", "fish").out)
    presses = "".join(f"complete -C '{line}';" for line in ("jan-serve tok", "jan-serve run my"))
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source {script}; {presses}"],
        env={**program, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["tokenize", "my-model"]
    assert done.stderr == ""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh")
def test_in_zsh(run: Run, models: Path, tmp_path: Path, program: dict[str, str]) -> None:
    script = tmp_path / "_jan-serve"
    script.write_text(run("completion", "zsh").out)
    with terminal(
        [shutil.which("zsh") or "", "-f", "-i"],
        {**program, "HOME": str(tmp_path), "PS1": "ready> "},
        tmp_path,
    ) as shown:
        shown.see_prompt("ready>")
        shown.type(f"autoload -Uz compinit; compinit -u -D; source {script}; echo load''ed\r")
        shown.see("loaded")
        shown.see_prompt("ready>")
        for typed, completed in (("jan-serve tok", "tokenize"), ("jan-serve run my", "my-model")):
            shown.type(f"{typed}{TAB}")
            shown.see(completed)
            shown.type(_CLEAR_LINE)

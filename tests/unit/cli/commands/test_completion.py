"""Completion with the Tab key: scripts for shells, and completed names."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from jan_serve.cli.commands.completion import complete_catalogue, complete_model
from tests.support.managed import add_model
from tests.support.terminal import TAB, terminal
from tests.unit.cli.conftest import Run


@pytest.fixture
def models(own_settings: Path) -> Path:
    """The models folder of the test's settings, with one model and one whose name a shell would run."""
    folder = own_settings.parent / "data" / "models"
    add_model(folder, "my-model")
    add_model(folder, "$(reboot)")
    return folder


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_scripts(run: Run, shell: str) -> None:
    answer = run("completion", shell)
    assert (answer.status, answer.err) == (0, "")
    assert "_JAN_SERVE_COMPLETE" in answer.out


def test_other_shells(run: Run) -> None:
    assert run("completion", "tcsh").status == 2
    assert run("completion").status == 2
    assert run("completion", "powershell", "--install").status == 2


def test_installing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for _ in range(2):
        answer = run("completion", "bash", "--install")
        assert (answer.status, answer.out) == (0, "")
    assert (tmp_path / ".bashrc").read_text().count("jan-serve.sh") == 1


def test_names(models: Path) -> None:
    assert complete_model("my") == ["my-model"]
    assert "$(reboot)" not in complete_model("")
    assert "qwen3-4b" in complete_catalogue("qwen3")


def test_names_where_settings_are_wrong(own_settings: Path) -> None:
    own_settings.write_text("nonsense = 1\n")
    assert complete_model("") == []


def test_serve_is_not_started_by_the_tab_key(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_JAN_SERVE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "jan-serve tok")
    monkeypatch.setenv("COMP_CWORD", "1")
    answer = run()
    assert (answer.status, answer.out) == (0, "tokenize\n")


_CLEAR_LINE = "\x15"


@pytest.fixture
def program(tmp_path: Path) -> dict[str, str]:
    """An environment in which `jan-serve` is this program."""
    file = tmp_path / "bin" / "jan-serve"
    file.parent.mkdir()
    file.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m jan_serve "$@"\n')
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return {**os.environ, "PATH": f"{file.parent}{os.pathsep}{os.environ['PATH']}"}


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

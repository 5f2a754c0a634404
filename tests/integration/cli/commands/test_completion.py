"""Completion with the Tab key: scripts for shells, and completed names."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.managed import add_model
from tests.unit.cli.conftest import Run


@pytest.fixture
def models(own_settings: Path) -> Path:
    """The models folder of the test's settings, with one model and one whose name a shell would run."""
    folder = own_settings.parent / "data" / "models"
    add_model(folder, "my-model")
    add_model(folder, "$(reboot)")
    return folder


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

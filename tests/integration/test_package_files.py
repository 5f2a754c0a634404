"""The files of packaging/ that can be checked without building anything."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
SCRIPTS = sorted(
    path
    for folder in (PACKAGING, PACKAGING / "deb", ROOT / "kernels", ROOT / "scripts")
    for path in folder.iterdir()
    if path.is_file() and path.read_bytes().startswith((b"#!/bin/sh", b"#!/usr/bin/env bash"))
)


def tool(name: str) -> str:
    """Its path; without it the test is skipped."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def test_the_description_is_valid() -> None:
    path = PACKAGING / "linux" / "jan-serve.metainfo.xml"
    command = [tool("appstreamcli"), "validate", "--no-net", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_scripts_can_be_read_and_run(path: Path) -> None:
    shell = "bash" if b"bash" in path.read_bytes()[:30] else "sh"
    subprocess.run([tool(shell), "-n", str(path)], check=True, timeout=30)
    if path.parent.name != "deb":
        assert path.stat().st_mode & 0o111, "not executable"

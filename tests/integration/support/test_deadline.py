"""A child that never writes fails the test that reads from it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.deadline import deadline


def child(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_what_reads_from_a_silent_child_ends() -> None:
    with child("import sys; sys.stdin.read()") as process:
        assert process.stdout is not None
        with pytest.raises(AssertionError, match=r"within 0\.01 s"), deadline(process, 0.01):
            assert process.stdout.readline() == ""
    assert process.returncode != 0


def test_a_child_that_writes_is_left_alone() -> None:
    with child("import sys; print(sys.stdin.readline())") as process:
        assert process.stdout is not None and process.stdin is not None
        with deadline(process):
            process.stdin.write("x\n")
            process.stdin.flush()
            assert process.stdout.readline() == "x\n"
        assert process.wait(60) == 0

"""Asking a worker about llama.cpp, in any state."""

from __future__ import annotations

import importlib.util
import json
import sys
from typing import Any

import pytest

from jan_serve.cli.server.hardware import ProbeFailed, probe_engine

ENGINE: dict[str, Any] = {"llama_cpp": "1.2.3", "devices": [{"name": "CUDA0"}, {"name": "CPU"}]}


def printing(text: str, status: int = 0) -> list[str]:
    """A command that prints `text` and exits with `status`."""
    return [
        sys.executable,
        "-c",
        f"import sys; print({text!r}); print('last words', file=sys.stderr); sys.exit({status})",
    ]


def test_the_last_json_line_is_the_answer() -> None:
    assert probe_engine(printing("ggml_cuda_init: found 1 device\n" + json.dumps(ENGINE))) == ENGINE


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (printing("", 3), r"does not start \(status 3\): last words"),
        ([sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"], r"signal 11"),
        (printing("no json"), "printed nothing about llama.cpp"),
        (["/no/such/program"], "cannot start a worker process"),
    ],
)
def test_a_broken_engine_is_a_problem(command: list[str], message: str) -> None:
    with pytest.raises(ProbeFailed, match=message):
        probe_engine(command)


def test_a_hanging_engine_times_out() -> None:
    with pytest.raises(ProbeFailed, match=r"did not answer within 0\.2 s"):
        probe_engine([sys.executable, "-c", "import sys; sys.stdin.read(); import time; time.sleep(60)"], 0.2)


@pytest.mark.integration
def test_the_real_engine_answers() -> None:
    if importlib.util.find_spec("llama_cpp") is None:
        pytest.skip("llama_cpp is not installed")
    engine = probe_engine()
    assert engine["devices"]
    assert engine["llama_cpp"]
    processor = next(device for device in engine["devices"] if device["kind"] == "cpu")
    assert 0 < processor["free_bytes"] < processor["total_bytes"]  # this process uses some

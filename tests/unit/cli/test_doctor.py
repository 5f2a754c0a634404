"""The doctor: what it says of a good and of a broken installation. It loads no llama.cpp itself."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from jan_serve.cli.doctor import ProbeFailed, examine, probe_engine
from jan_serve.cli.main import main
from jan_serve.config import load_settings

ENGINE: dict[str, Any] = {
    "llama_cpp": "1.2.3",
    "supports_gpu_offload": True,
    "devices": [
        {"name": "CUDA0", "kind": "gpu", "description": "A card", "free_bytes": 8e9, "total_bytes": 12e9}
    ],
}


def printing(text: str, status: int = 0) -> list[str]:
    """A command that prints `text` and ends with `status`."""
    return [
        sys.executable,
        "-c",
        f"import sys; print({text!r}); print('last words', file=sys.stderr); sys.exit({status})",
    ]


def test_the_last_json_line_counts() -> None:
    assert probe_engine(printing("ggml_cuda_init: found 1 device\n" + json.dumps(ENGINE))) == ENGINE


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (printing("", 3), r"does not start \(status 3\): last words"),
        ([sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"], r"signal 11"),
        (printing("no json"), "said nothing about llama.cpp"),
        (["/no/such/program"], "cannot start a worker process"),
    ],
)
def test_a_broken_engine_is_a_problem(command: list[str], message: str) -> None:
    with pytest.raises(ProbeFailed, match=message):
        probe_engine(command)


def test_an_engine_that_hangs_is_given_up() -> None:
    with pytest.raises(ProbeFailed, match=r"did not answer within 0\.2 s"):
        probe_engine([sys.executable, "-c", "import sys; sys.stdin.read(); import time; time.sleep(60)"], 0.2)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config.toml"
    path.write_text('data_dir = "data"\n')
    monkeypatch.setenv("JAN_SERVE_CONFIG", str(path))
    monkeypatch.setattr("jan_serve.wiring.builtin_model", lambda: None)

    def probe() -> dict[str, Any]:
        return ENGINE

    monkeypatch.setattr("jan_serve.cli.doctor.probe_engine", probe)
    return path


def test_facts_and_json(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["engine"]["devices"][0]["name"] == "CUDA0"
    assert shown["facts"]["data folder"].startswith(f"{config.parent / 'data'} (not there yet)")
    assert "llama-cpp-python" in shown["facts"]["packages"]
    assert shown["problems"] == []
    assert any("no model to serve" in warning for warning in shown["warnings"])
    assert main(["doctor"]) == 0
    assert "8 GB of 12 GB" in capsys.readouterr().out


def test_problems_make_the_status_1(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> dict[str, object]:
        raise ProbeFailed("llama.cpp does not start")

    monkeypatch.setattr("jan_serve.cli.doctor.probe_engine", broken)
    assert main(["doctor"]) == 1
    assert "error: llama.cpp does not start" in capsys.readouterr().err


def test_a_damaged_default_model_is_a_problem(config: Path, tmp_path: Path) -> None:
    model = tmp_path / "broken.gguf"
    model.write_bytes(b"nonsense")
    findings = examine(load_settings({"model": str(model)}))
    assert any("broken.gguf is not a valid GGUF file" in problem for problem in findings.problems)
    findings = examine(load_settings({"model": "absent"}))
    assert any("`absent` does not exist" in problem for problem in findings.problems)


def test_a_file_in_place_of_a_folder_is_a_problem(config: Path, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    findings = examine(load_settings({"models_dir": str(tmp_path)}))
    assert any("is not a folder" in problem for problem in findings.problems)


@pytest.mark.integration
def test_the_real_engine_answers() -> None:
    if importlib.util.find_spec("llama_cpp") is None:
        pytest.skip("llama_cpp is not installed")
    engine = probe_engine()
    assert engine["devices"]
    assert engine["llama_cpp"]

"""The doctor: a working and a broken installation. It loads no llama.cpp itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jan_serve.cli.commands.doctor import ProbeFailed, examine
from jan_serve.cli.main import main
from jan_serve.config import load_settings

ENGINE: dict[str, Any] = {
    "llama_cpp": "1.2.3",
    "supports_gpu_offload": True,
    "devices": [
        {"name": "CUDA0", "kind": "gpu", "description": "A card", "free_bytes": 8e9, "total_bytes": 12e9},
        {"name": "BLAS", "kind": "accel", "description": "A library", "free_bytes": 0, "total_bytes": 0},
    ],
}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config.toml"
    path.write_text('data_dir = "data"\n')
    monkeypatch.setenv("JAN_SERVE_CONFIG", str(path))
    monkeypatch.setattr("jan_serve.wiring.parts.builtin_model", lambda: None)

    def probe(**_: Any) -> dict[str, Any]:
        return ENGINE

    monkeypatch.setattr("jan_serve.cli.commands.doctor.probe_engine", probe)
    return path


def test_facts_and_json(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["engine"]["devices"][0]["name"] == "CUDA0"
    assert shown["facts"]["data folder"].startswith(f"{config.parent / 'data'} (not there yet)")
    assert "not installed" not in shown["facts"]["packages"]
    assert shown["problems"] == []
    assert any("no model to serve" in warning for warning in shown["warnings"])
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "8 GB of 12 GB" in shown
    assert "main memory" in shown


def test_problems_make_the_status_1(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**_: Any) -> dict[str, object]:
        raise ProbeFailed("llama.cpp does not start")

    monkeypatch.setattr("jan_serve.cli.commands.doctor.probe_engine", broken)
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


def test_folders_that_cannot_be_written_are_warned_of(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Root may write everywhere, so the check of permissions is replaced.
    def can_write(folder: Path) -> bool:
        return folder != tmp_path / "shelf"

    monkeypatch.setattr("jan_serve.cli.commands.doctor.can_write", can_write)
    (tmp_path / "shelf").mkdir()
    findings = examine(load_settings({"models_dir": str(tmp_path / "shelf")}))
    assert findings.problems == []
    assert [warning for warning in findings.warnings if "cannot write" in warning] == [
        f"this user cannot write to the models folder {tmp_path / 'shelf'}: models cannot be pulled, imported or"
        " removed"
    ]


def test_what_is_known_of_llama_cpp_is_said_for_people(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine: dict[str, Any] = {
        "llama_cpp": "0.5.0 (0.3.36)",
        "supports_gpu_offload": False,
        "supports_mmap": True,
        "max_parallel_sequences": 256,
        "missing_peers": {},
        "accelerators": [],
        "devices": [],
    }

    def rows() -> list[str]:
        assert main(["doctor"]) == 0
        return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]

    def probe(**_: Any) -> dict[str, Any]:
        return engine

    monkeypatch.setattr("jan_serve.cli.commands.doctor.probe_engine", probe)
    shown = rows()
    assert "llama.cpp 0.5.0 (llama-cpp-python 0.3.36)" in shown
    assert "offload to accelerators no" in shown
    assert "mmap yes" in shown
    assert "parallel sequences at most 256" in shown
    assert "accelerators none (CPU build)" in shown
    assert not any("peers" in row or "True" in row or "[]" in row for row in shown)
    engine |= {"supports_gpu_offload": True}
    assert "accelerators none found" in rows()
    engine |= {"accelerators": [{"name": "CUDA0"}, {"name": "CUDA1"}], "missing_peers": {"a:1": "refused"}}
    shown = rows()
    assert "accelerators CUDA0, CUDA1" in shown
    assert "missing peers a:1: refused" in shown

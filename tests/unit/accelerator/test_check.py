"""The check of an accelerator: which backend, which steps, and a report that says what failed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import jan_serve
from benchmarks.rows import ROWS
from scripts.accelerator import __main__ as command
from scripts.accelerator import backends, steps
from scripts.accelerator.report import failed_steps, markdown
from scripts.installer.errors import InstallError

DEVICE = {"name": "CUDA0", "kind": "gpu", "description": "A card", "free_bytes": 8 << 30}


def tools(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(backends.platform, "system", lambda: "Linux")

    def tool_path(tool: str) -> str | None:
        return f"/bin/{tool}" if tool in names else None

    monkeypatch.setattr(backends, "tool_path", tool_path)


def test_what_it_runs_is_there() -> None:
    assert [name for name in steps.TESTS if not (Path(__file__).parents[3] / name).is_file()] == []


@pytest.mark.parametrize(
    ("found", "backend"), [(("nvcc", "glslc"), "cuda"), (("hipcc",), "hip"), (("glslc",), "vulkan")]
)
def test_the_machine_s_compiler_chooses(
    monkeypatch: pytest.MonkeyPatch, found: tuple[str, ...], backend: str
) -> None:
    tools(monkeypatch, *found)
    assert backends.chosen_backend(None).name == backend
    assert backends.chosen_backend("cpu").name == "cpu"


def test_without_a_compiler_nothing_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    tools(monkeypatch)
    with pytest.raises(InstallError, match=r"nvcc \(cuda\), hipcc \(hip\), glslc \(vulkan\)"):
        backends.chosen_backend(None)
    assert command.main(["--work", "/nowhere"]) == 2


def fake_steps(monkeypatch: pytest.MonkeyPatch, **results: Any) -> None:
    def returning(result: Any) -> Any:
        def step(_check: steps.Check) -> Any:
            if isinstance(result, Exception):
                raise result
            return result

        return step

    for name, result in results.items():
        monkeypatch.setattr(steps, name, returning(result))


GOOD: dict[str, Any] = {
    "build": {"seconds": 1.0, "cmake_args": "-DGGML_CUDA=on"},
    "devices": {"doctor": {"engine": {"devices": [DEVICE]}}},
    "tests": {"status": 0, "tests": 3, "failures": 0, "errors": 0, "skipped": 1, "failed": []},
    "rows": {
        "status": 0,
        "missing": [],
        "model": "bench.gguf",
        "device": {"one-stream": {"between_ms": 2.0}},
        "cpu": {"one-stream": {"between_ms": 8.0}},
    },
}


def test_a_report_of_all_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_steps(monkeypatch, **GOOD)
    assert command.main(["--backend", "cuda", "--work", str(tmp_path)]) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert list(report["steps"]) == ["build", "devices", "tests", "rows"]
    assert report["version"] == jan_serve.__version__
    text = (tmp_path / "report.md").read_text()
    for part in ("All steps succeeded", "3 run, 0 failed, 1 skipped", "| CUDA0 | gpu | A card | 8.0 GiB |"):
        assert part in text
    assert "| one-stream | between_ms | 2 | 8 | 0.25 |" in text


def test_a_failed_build_ends_the_check_and_is_in_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_steps(monkeypatch, **{**GOOD, "build": InstallError("no compiler")})
    assert command.main(["--backend", "cuda", "--work", str(tmp_path)]) == 1
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["steps"] == {"build": {"error": "no compiler"}}
    assert "failed: no compiler (`--step build` repeats it alone)" in (tmp_path / "report.md").read_text()


def test_a_model_that_is_not_there_is_refused_before_the_build(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command.main(["--backend", "cpu", "--work", str(tmp_path), "--model", "jan-tiny"])
    assert "--model: there is no file jan-tiny" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_failed_tests_do_not_hide_the_rows_and_later_calls_add_to_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = {**GOOD["tests"], "status": 1, "failures": 1, "failed": ["test_a: differs"]}
    fake_steps(monkeypatch, **{**GOOD, "tests": failed})
    for names in (["build", "devices"], ["tests", "rows"]):
        chosen = [flag for name in names for flag in ("--step", name)]
        status = command.main(["--backend", "cuda", "--work", str(tmp_path), *chosen])
    report = json.loads((tmp_path / "report.json").read_text())
    assert status == 1 and failed_steps(report) == ["tests"]
    assert "Not all is well: tests." in (tmp_path / "report.md").read_text()
    assert set(report["steps"]) == {"build", "devices", "tests", "rows"}
    assert "- test_a: differs" in markdown(report)


@pytest.mark.parametrize(
    ("facts", "status"), [({}, 0), ({"status": 0}, 0), ({"status": 1}, 1), ({"error": "no device"}, 1)]
)
def test_the_exit_status_is_that_of_the_steps_and_not_of_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any], status: int
) -> None:
    def verdict(_report: object) -> str:
        return "Said in other words."

    monkeypatch.setattr(command, "verdict", verdict)
    fake_steps(monkeypatch, devices=facts)
    arguments = ["--backend", "cuda", "--work", str(tmp_path), "--step", "devices"]
    assert command.main(arguments) == status


@pytest.mark.parametrize(
    ("backend", "accelerators", "missing"),
    [("cuda", [], True), ("cuda", [DEVICE], False), ("cpu", [], False)],
)
def test_a_device_that_llama_cpp_does_not_find_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, accelerators: list[Any], missing: bool
) -> None:
    """Otherwise tests of the CPU alone would count as the device's."""
    doctor = {"engine": {"devices": [DEVICE], "accelerators": accelerators}}

    def run(*_: object) -> str:
        return f"a warning\n{json.dumps(doctor)}\n"

    monkeypatch.setattr(steps, "run", run)
    facts = steps.devices(steps.Check(backends.BACKENDS[backend], tmp_path))
    assert facts["doctor"] == doctor
    assert facts.get("error") == ("llama.cpp finds no device for cuda" if missing else None)


def test_the_rows_of_the_check_are_the_benchmark_s() -> None:
    needed = {row.name: row.needs_ctx for row in ROWS}
    assert all(needed[name] <= steps.N_CTX for name in steps.ROWS)


def test_a_row_that_is_not_measured_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def status(command: list[str | Path], _log: Path, _variables: dict[str, str]) -> int:
        out = Path(command[command.index("--out") + 1])
        out.write_text('{"machine": {}, "medians": {"jan-serve": {"one-stream": {}}}}')
        return 0

    monkeypatch.setattr(steps, "_status", status)
    check = steps.Check(
        backends.BACKENDS["cpu"], tmp_path, model=tmp_path / "m.gguf", rows=("one-stream", "no-such")
    )
    facts = steps.rows(check)
    assert (facts["status"], facts["missing"]) == (1, ["no-such"])
    report = {"backend": "cpu", "version": "1", "at": "", "machine": {"system": ""}, "steps": {"rows": facts}}
    assert "with m.gguf, not measured: no-such" in markdown(report)

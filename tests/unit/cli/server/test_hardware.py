"""Free memory, with and without limits of control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.cli.server.hardware import cgroup_memory_left, free_memory, may_have_accelerators


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (("libggml.so", "libggml-base.so.0", "libggml-cpu.so", "libllama.so"), False),
        (("libggml-base.so", "libggml-cpu.so", "libggml-cuda.so"), True),
        (("ggml.dll", "ggml-base.dll", "ggml-cpu.dll", "ggml-vulkan.dll"), True),
        (("libggml-base.dylib", "libggml-blas.dylib", "libggml-cpu.dylib"), False),
        (("libggml-metal.dylib",), True),
        (("libggml.so", "libggml-base.so", "libggml-cpu-haswell.so", "libggml-cpu-x64.so"), False),
        (("libllama.so",), True),
    ],
)
def test_backends_are_found_by_their_libraries(
    tmp_path: Path, files: tuple[str, ...], expected: bool
) -> None:
    for name in files:
        (tmp_path / name).touch()
    assert may_have_accelerators(tmp_path) is expected


def test_without_a_folder_there_may_be_accelerators() -> None:
    assert may_have_accelerators(None)


def test_the_main_memory_is_not_empty() -> None:
    assert free_memory().usable > 0


def test_a_limit_of_the_container_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jan_serve.cli.server.hardware.cgroup_memory_left", lambda: 10_000_000)
    assert free_memory().main == 10_000_000


V2 = ("memory.max", "memory.current")
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")
GB = 1 << 30


def group(folder: Path, names: tuple[str, str], limit: int | str, used: int, cache: int = 0) -> None:
    """A control group. cache: bytes of file pages within `used`, half of them active."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    total = "total_" if names is V1 else ""
    (folder / "memory.stat").write_text(
        f"anon 1\n{total}active_file {cache // 2}\n{total}inactive_file {cache // 2}\n"
    )


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """/proc and /sys/fs/cgroup."""
    (tmp_path / "proc" / "self").mkdir(parents=True)
    return tmp_path / "proc", tmp_path / "mounts"


def left(folders: tuple[Path, Path], *lines: str) -> int | None:
    (folders[0] / "self" / "cgroup").write_text("".join(f"{line}\n" for line in lines))
    return cgroup_memory_left(*folders)


def test_a_container_of_version_2(folders: tuple[Path, Path]) -> None:
    group(folders[1], V2, 4 * GB, 3 * GB, cache=2 * GB)
    assert left(folders, "0::/") == 3 * GB
    group(folders[1], V2, 4 * GB, 5 * GB)
    assert left(folders, "0::/") == 0


def test_the_lowest_limit_of_the_parents_applies(folders: tuple[Path, Path]) -> None:
    group(folders[1] / "user.slice", V2, 2 * GB, GB)
    group(folders[1] / "user.slice" / "a.service", V2, "max", 0)
    assert left(folders, "0::/user.slice/a.service") == GB
    group(folders[1] / "user.slice" / "a.service", V2, GB, GB // 2)
    assert left(folders, "0::/user.slice/a.service") == GB // 2


def test_version_1(folders: tuple[Path, Path]) -> None:
    group(folders[1] / "memory" / "docker" / "x", V1, 2 * GB, GB, cache=GB)
    group(folders[1] / "memory", V1, (1 << 63) - 4096, 9 * GB)
    assert left(folders, "9:cpu:/docker/x", "4:memory:/docker/x", "0::/") == 2 * GB


@pytest.mark.parametrize(
    "lines", [(), ("0::/",), ("0::/../../elsewhere",), ("nonsense",), ("4:memory:/x",), ("0::/gone/away",)]
)
def test_unknown_groups_have_no_limit(folders: tuple[Path, Path], lines: tuple[str, ...]) -> None:
    assert left(folders, *lines) is None


def test_an_invalid_number_is_no_limit(folders: tuple[Path, Path]) -> None:
    group(folders[1], V2, "4G", 0)
    assert left(folders, "0::/") is None
    group(folders[1], V2, GB, 0)
    (folders[1] / "memory.current").write_text("?")
    assert left(folders, "0::/") is None


def test_no_control_groups(tmp_path: Path) -> None:
    assert cgroup_memory_left(tmp_path, tmp_path) is None

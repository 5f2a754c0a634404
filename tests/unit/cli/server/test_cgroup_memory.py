"""Limits of control groups, from files in the format of the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.cli.server.cgroup_memory import cgroup_memory_left

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

"""Which llama.cpp is compiled, and when a kept one serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels import llama
from kernels.llama import Build, chosen_builds, requirement_of
from scripts.installer.errors import InstallError

PIN = "llama-cpp-python==1 \\\n    --hash=sha256:1\n"


@pytest.fixture(autouse=True)
def _no_compiler_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("system", "machine", "cmake_args", "wanted", "expected"),
    [
        ("Linux", "x86_64", "", "", ["zig", "system"]),
        ("Linux", "x86_64", "", "system", ["system"]),
        ("Linux", "x86_64", "-DGGML_CUDA=on", "", ["system"]),
        ("Linux", "x86_64", "-DGGML_CUDA=on", "zig", ["zig", "system"]),
        ("Linux", "aarch64", "", "", ["system"]),
        ("Darwin", "arm64", "", "", ["system"]),
    ],
)
def test_the_compiler(
    monkeypatch: pytest.MonkeyPatch,
    system: str,
    machine: str,
    cmake_args: str,
    wanted: str,
    expected: list[str],
) -> None:
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert [build.compiler for build in chosen_builds(cmake_args, wanted)] == expected


def test_an_unknown_compiler_is_named() -> None:
    with pytest.raises(InstallError, match="not msvc"):
        chosen_builds("", "msvc")


def test_a_package_is_by_one_compiler_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert [build.compiler for build in chosen_builds("", "", portable=True)] == ["zig"]


def test_a_wheel_is_for_its_pin_arguments_compiler_and_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    def keys() -> dict[str, str]:
        return {
            "zig": Build("zig").key(PIN),
            "system": Build("system").key(PIN),
            "arguments": Build("zig", "-DGGML_CUDA=on").key(PIN),
            "pin": Build("zig").key(PIN + "2"),
            "portable": Build("zig", portable=True).key(PIN),
        }

    monkeypatch.setattr(llama, "_processor", lambda: "one")
    one = keys()
    assert len(set(one.values())) == len(one)
    assert keys() == one
    monkeypatch.setattr(llama, "_processor", lambda: "another")
    assert {name for name, key in keys().items() if key == one[name]} == {"portable"}
    monkeypatch.setenv("CXX", "clang++")
    assert keys()["system"] != one["system"]


def test_the_pin_has_its_hashes(tmp_path: Path) -> None:
    path = tmp_path / "constraints.txt"
    path.write_text("a==1 \\\n    --hash=sha256:0\n" + PIN + "m==1 \\\n    --hash=sha256:2\n")
    assert requirement_of(path) == PIN
    path.write_text("a==1\n")
    with pytest.raises(InstallError, match="no llama-cpp-python"):
        requirement_of(path)


def test_every_build_has_devices_of_other_machines_and_a_portable_one_needs_no_library_for_them() -> None:
    builds = Build("zig"), Build("system", "-DGGML_CUDA=on"), Build("zig", portable=True)
    assert [build.definitions()["GGML_RPC"] for build in builds] == ["ON"] * 3
    assert [build.definitions().get("GGML_RPC_RDMA") for build in builds] == [None, None, "OFF"]

from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.cli.server.memory_meter import free_memory, may_have_accelerators


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (("libggml.so", "libggml-base.so.0", "libggml-cpu.so", "libllama.so"), False),
        (("libggml-base.so", "libggml-cpu.so", "libggml-cuda.so"), True),
        (("ggml.dll", "ggml-base.dll", "ggml-cpu.dll", "ggml-vulkan.dll"), True),
        (("libggml-base.dylib", "libggml-blas.dylib", "libggml-cpu.dylib"), False),
        (("libggml-metal.dylib",), True),
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
    monkeypatch.setattr("jan_serve.cli.server.memory_meter.cgroup_memory_left", lambda: 10_000_000)
    assert free_memory().main == 10_000_000

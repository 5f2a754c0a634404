"""llama.cpp as a library: its errors, its devices, its build."""

from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.engine.llama import backend
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.errors import InvalidModel

pytestmark = pytest.mark.integration


def test_errors_are_captured_during_the_block_only(tmp_path: Path) -> None:
    backend.start()
    path = tmp_path / "empty.gguf"
    path.write_bytes(b"")
    with backend.last_error() as found, pytest.raises(InvalidModel):
        LlamaModel(str(path))
    assert found.lines and found.text
    with backend.last_error() as nothing:
        pass
    assert (nothing.text, nothing.lines) == ("", ())


def test_the_cpu_is_a_device_found_by_its_name_in_any_case() -> None:
    backend.start()
    devices = backend.devices()
    cpu = next(device for device in devices if device.kind == "cpu")
    assert 0 < cpu.free_bytes <= cpu.total_bytes
    assert backend.device_pointer(cpu.name.lower()) == backend.device_pointer(cpu.name.upper()) is not None
    assert backend.device_pointer("nowhere") is None


def test_the_build_says_what_it_is() -> None:
    features = backend.build_features()
    assert features["llama_cpp"] == backend.version()
    assert features["max_parallel_sequences"] >= 64
    assert features["supports_mmap"] in (True, False)
    assert "CPU" in features["system_info"]

"""Devices that are real to llama.cpp: rpc-server processes on this machine, with limited memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.engine.llama import backend, rpc
from jan_serve.errors import SettingsError
from models.recipe.fixtures import write_tiny_llama, write_tiny_recurrent
from models.recipe.mixture_fixtures import write_tiny_mixture
from tests.support.gguf.models import model_folder as model_folder


@pytest.fixture(scope="session", autouse=True)
def _rpc_is_built() -> None:  # pyright: ignore[reportUnusedFunction]
    backend.start()
    try:
        rpc.check_built()
    except SettingsError as error:
        pytest.skip(f"{error} (an older wheel: `make install` builds it)")


@pytest.fixture(scope="session")
def dense(model_folder: Path) -> Path:
    """Eight blocks of 2.5 MiB."""
    path = model_folder / "rpc-dense.gguf"
    write_tiny_llama(path, n_layer=8, n_embd=256, quantize=False)
    return path


@pytest.fixture(scope="session")
def mixture(model_folder: Path) -> Path:
    """Six blocks of 1 MiB, and 12 MiB of experts each."""
    path = model_folder / "rpc-mixture.gguf"
    write_tiny_mixture(path, n_layer=6, n_embd=256, quantize=False)
    return path


@pytest.fixture(scope="session")
def recurrent(model_folder: Path) -> Path:
    """Eight blocks with states."""
    path = model_folder / "rpc-recurrent.gguf"
    write_tiny_recurrent(path, n_layer=8, n_embd=256, quantize=False)
    return path

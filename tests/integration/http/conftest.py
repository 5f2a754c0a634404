"""Servers for tests of this folder that leave them unchanged. Tests that break one start their own."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from jan_serve.resources import builtin_model
from tests.integration.http.support import N_CTX, serving_models
from tests.support.gguf.models import exact_llama as exact_llama
from tests.support.gguf.models import model_folder as model_folder
from tests.support.gguf.models import tiny_bert as tiny_bert
from tests.support.servers.served import Served


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory, exact_llama: Path, tiny_bert: Path) -> Generator[Served]:
    """A chat model by default; an embedder replaces it, so that there is always one worker."""
    folder = tmp_path_factory.mktemp("http")
    flags = ("--n-ctx", str(N_CTX), "--parallel", "8", "--max-models", "1")
    with serving_models(folder, exact_llama, tiny_bert, flags=flags) as served:
        yield served


@pytest.fixture(scope="package")
def builtin_url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The URL of a server with the built-in model."""
    model = builtin_model()
    assert model is not None
    with serving_models(tmp_path_factory.mktemp("builtin"), model) as served:
        yield served.url()

"""One server for tests of this folder that leave it unchanged. Tests that break one start their own."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.integration.http.support import N_CTX, serving_models
from tests.support.models import exact_llama as exact_llama
from tests.support.models import model_folder as model_folder
from tests.support.models import tiny_bert as tiny_bert
from tests.support.served import Served


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory, exact_llama: Path, tiny_bert: Path) -> Generator[Served]:
    """A chat model by default; an embedder replaces it, so that there is always one worker."""
    folder = tmp_path_factory.mktemp("http")
    flags = ("--n-ctx", str(N_CTX), "--parallel", "8", "--max-models", "1")
    with serving_models(folder, exact_llama, tiny_bert, flags=flags) as served:
        yield served

"""Random-weight GGUF files, written once per test session. Import the fixtures that a conftest offers to its tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.recipe import fixtures


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the session's fixtures lie."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def tiny_llama(model_folder: Path) -> Path:
    """A chat model of 512 tokens of context with a byte-level vocabulary; greedy runs go on until their limit."""
    path = model_folder / "tiny-llama.gguf"
    fixtures.write_tiny_llama(path)
    return path


@pytest.fixture(scope="session")
def tiny_recurrent(model_folder: Path) -> Path:
    """A Mamba model."""
    path = model_folder / "tiny-recurrent.gguf"
    fixtures.write_tiny_recurrent(path)
    return path


@pytest.fixture(scope="session")
def tiny_hybrid(model_folder: Path) -> Path:
    """An LFM2 model: recurrent layers and one attention layer."""
    path = model_folder / "tiny-hybrid.gguf"
    fixtures.write_tiny_hybrid(path)
    return path


@pytest.fixture(scope="session")
def tiny_bert(model_folder: Path) -> Path:
    """An embedding model with mean pooling."""
    path = model_folder / "tiny-bert.gguf"
    fixtures.write_tiny_bert(path)
    return path


@pytest.fixture(scope="session")
def tiny_bert_cls(model_folder: Path) -> Path:
    """An embedding model with CLS pooling, of the same weights as `tiny_bert`."""
    path = model_folder / "tiny-bert-cls.gguf"
    fixtures.write_tiny_bert(path, pooling="cls")
    return path


@pytest.fixture(scope="session")
def tiny_reranker(model_folder: Path) -> Path:
    """A reranker: one score per input."""
    path = model_folder / "tiny-reranker.gguf"
    fixtures.write_tiny_bert(path, pooling="rank")
    return path

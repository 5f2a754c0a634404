"""Random-weight GGUF files, written once per test session. Import the fixtures that a conftest offers to its tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from models.recipe import fixtures
from models.recipe.reranker_fixtures import write_decoder_reranker

# A batch changes the order of additions. With F32 throughout the effect is far too small to change a token. Flash
# attention on the CPU accumulates in f16, and quantised weights round activations to 8 bits, so near ties may change.
EXACT: dict[str, Any] = {"flash_attn": "off", "type_k": "f32", "type_v": "f32", "threads": 1}


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the session's fixtures."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def tiny_llama(model_folder: Path) -> Path:
    """A chat model of 512 tokens of context with a byte-level vocabulary; greedy runs go on until their limit."""
    path = model_folder / "tiny-llama.gguf"
    fixtures.write_tiny_llama(path)
    return path


@pytest.fixture(scope="session")
def exact_llama(model_folder: Path) -> Path:
    """`tiny_llama` with F32 weights: with EXACT settings, answers do not depend on other requests."""
    path = model_folder / "exact-llama.gguf"
    fixtures.write_tiny_llama(path, quantize=False)
    return path


@pytest.fixture(scope="session")
def exact_recurrent(model_folder: Path) -> Path:
    """A Mamba model of F32 weights."""
    path = model_folder / "exact-recurrent.gguf"
    fixtures.write_tiny_recurrent(path, quantize=False)
    return path


@pytest.fixture(scope="session")
def exact_hybrid(model_folder: Path) -> Path:
    """An LFM2 model of F32 weights: recurrent layers and one attention layer."""
    path = model_folder / "exact-hybrid.gguf"
    fixtures.write_tiny_hybrid(path, quantize=False)
    return path


@pytest.fixture(scope="session")
def exact_sliding(model_folder: Path) -> Path:
    """A Cohere2 model of F32 weights: three blocks attend to 32 tokens, the fourth to all."""
    path = model_folder / "exact-sliding.gguf"
    fixtures.write_tiny_sliding(path, quantize=False)
    return path


@pytest.fixture(scope="session")
def tiny_bert(model_folder: Path) -> Path:
    """An embedding model with mean pooling."""
    path = model_folder / "tiny-bert.gguf"
    fixtures.write_tiny_bert(path)
    return path


@pytest.fixture(scope="session")
def exact_gemma_embedding(model_folder: Path) -> Path:
    """An encoder of F32 weights whose file does not declare non-causal attention."""
    path = model_folder / "exact-gemma-embedding.gguf"
    fixtures.write_tiny_gemma_embedding(path, quantize=False)
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


@pytest.fixture(scope="session")
def tiny_judge(model_folder: Path) -> Path:
    """A decoder that scores: `yes` or `no` after the last token."""
    path = model_folder / "tiny-judge.gguf"
    fixtures.write_tiny_judge(path, quantize=False)
    return path


@pytest.fixture(scope="session")
def exact_reranker(model_folder: Path) -> Path:
    """`tiny_reranker` with F32 weights."""
    path = model_folder / "exact-reranker.gguf"
    fixtures.write_tiny_bert(path, pooling="rank", quantize=False)
    return path


@pytest.fixture(scope="session")
def decoder_reranker(model_folder: Path) -> Path:
    """A decoder of F32 weights with a scoring head for `yes` and `no` and a template for pairs."""
    path = model_folder / "decoder-reranker.gguf"
    write_decoder_reranker(path, head=True)
    return path


@pytest.fixture(scope="session")
def writing_reranker(model_folder: Path) -> Path:
    """A decoder of F32 weights with a template for pairs, which has no head: it writes `yes` or `no`."""
    path = model_folder / "writing-reranker.gguf"
    write_decoder_reranker(path, head=False)
    return path

"""Random-weight GGUF files, written once per test session. Import the fixtures that a conftest offers to its tests."""

from __future__ import annotations

from collections.abc import Callable
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


def _file(name: str, write: Callable[..., object], **options: Any) -> Any:
    """The fixture of a file, which is written when a test first asks for it."""

    @pytest.fixture(scope="session", name=name.replace("-", "_"))
    def path(model_folder: Path) -> Path:
        path = model_folder / f"{name}.gguf"
        write(path, **options)
        return path

    return path


# A chat model of 512 tokens of context with a byte-level vocabulary; greedy runs go on until their limit. With F32
# weights and EXACT settings, answers do not depend on other requests.
tiny_llama = _file("tiny-llama", fixtures.write_tiny_llama)
exact_llama = _file("exact-llama", fixtures.write_tiny_llama, quantize=False)
# Mamba; LFM2 with recurrent layers and one attention layer; Cohere2, of which three blocks attend to 32 tokens and the
# fourth to all.
exact_recurrent = _file("exact-recurrent", fixtures.write_tiny_recurrent, quantize=False)
exact_hybrid = _file("exact-hybrid", fixtures.write_tiny_hybrid, quantize=False)
exact_sliding = _file("exact-sliding", fixtures.write_tiny_sliding, quantize=False)
# Embedding models with mean and, of the same weights, CLS pooling; an encoder whose file does not declare non-causal
# attention; rerankers with one score per input.
tiny_bert = _file("tiny-bert", fixtures.write_tiny_bert)
tiny_bert_cls = _file("tiny-bert-cls", fixtures.write_tiny_bert, pooling="cls")
exact_gemma_embedding = _file("exact-gemma-embedding", fixtures.write_tiny_gemma_embedding, quantize=False)
tiny_reranker = _file("tiny-reranker", fixtures.write_tiny_bert, pooling="rank")
exact_reranker = _file("exact-reranker", fixtures.write_tiny_bert, pooling="rank", quantize=False)
# Decoders: scoring `yes` or `no` after the last token; a scoring head for both and a template for pairs; that template
# without a head, which writes the word.
tiny_judge = _file("tiny-judge", fixtures.write_tiny_judge, quantize=False)
decoder_reranker = _file("decoder-reranker", write_decoder_reranker, head=True)
writing_reranker = _file("writing-reranker", write_decoder_reranker, head=False)

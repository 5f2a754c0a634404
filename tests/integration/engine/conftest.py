"""Real workers for the engine's tests. Most tests share one: they must leave nothing running."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.engine.worker import Worker, running_worker
from tests.support.gguf.models import EXACT
from tests.support.gguf.models import decoder_reranker as decoder_reranker
from tests.support.gguf.models import exact_gemma_embedding as exact_gemma_embedding
from tests.support.gguf.models import exact_hybrid as exact_hybrid
from tests.support.gguf.models import exact_llama as exact_llama
from tests.support.gguf.models import exact_recurrent as exact_recurrent
from tests.support.gguf.models import exact_reranker as exact_reranker
from tests.support.gguf.models import exact_sliding as exact_sliding
from tests.support.gguf.models import model_folder as model_folder
from tests.support.gguf.models import tiny_bert as tiny_bert
from tests.support.gguf.models import tiny_bert_cls as tiny_bert_cls
from tests.support.gguf.models import tiny_llama as tiny_llama
from tests.support.gguf.models import tiny_reranker as tiny_reranker
from tests.support.gguf.models import writing_reranker as writing_reranker


@pytest.fixture(scope="session")
def shared_llama(exact_llama: Path) -> Generator[Worker]:
    """One worker of the tiny chat model: 8 sequences at once in 2048 cells."""
    with running_worker(exact_llama, n_ctx=2048, parallel=8, **EXACT) as worker:
        yield worker


@pytest.fixture
def llama(shared_llama: Worker) -> Generator[Worker]:
    """The shared worker, idle before and after the test."""
    assert shared_llama.process.poll() is None, "an earlier test ended the shared worker"
    yield shared_llama
    stats = shared_llama.stats()
    assert (stats.running, stats.waiting) == (0, 0), "the test left requests running"

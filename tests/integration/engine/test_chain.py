"""Sampler chains see only the tokens that can matter, and choose as if they had seen all."""

from __future__ import annotations

import numpy as np
import psutil
import pytest

from jan_serve.core.sampling import SamplingParams
from jan_serve.engine.llama.chain import Candidates, SamplerChain, likely_ids

pytestmark = pytest.mark.integration

N_VOCAB = 5000


def random_logits(seed: int, n_vocab: int = N_VOCAB) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(n_vocab) * 3).astype(np.float32)


@pytest.mark.parametrize("n_vocab", [10, 256, 257, 5000])
@pytest.mark.parametrize("count", [1, 7, 300])
def test_likely_ids_hold_the_largest_logits(n_vocab: int, count: int) -> None:
    logits = random_logits(count, n_vocab)
    logits[:: max(2, n_vocab // 5)] = -np.inf
    finite = int(np.isfinite(logits).sum())
    best = set(np.argsort(-logits, kind="stable")[: min(count, finite)].tolist())
    assert best <= set(likely_ids(logits, count).tolist())


def test_likely_ids_leave_masked_tokens_out() -> None:
    logits = np.full(1000, -np.inf, np.float32)
    logits[[3, 700]] = 1.0
    assert likely_ids(logits, 40).tolist() == [3, 700]


PARAMS = {
    "top_k": SamplingParams(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05),
    "penalties": SamplingParams(temperature=0.8, top_k=20, repeat_penalty=1.3, frequency_penalty=0.5),
    "penalties that raise": SamplingParams(temperature=0.8, top_k=20, presence_penalty=-2.0),
    "greedy with penalties": SamplingParams(temperature=0.0, repeat_penalty=1.5, presence_penalty=1.0),
}


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS.keys())
def test_choice_equals_that_over_the_whole_vocabulary(params: SamplingParams) -> None:
    candidates = Candidates(N_VOCAB)
    narrow = SamplerChain(params, 7, N_VOCAB, 4096)
    wide = SamplerChain(params, 7, N_VOCAB, 4096)
    # No parameters make a chain with a top-k look at all tokens.
    wide._keeps = 0  # pyright: ignore[reportPrivateUsage]
    for step in range(60):
        logits = random_logits(step)
        token = narrow.pick(logits, candidates)
        assert token == wide.pick(logits, candidates)
        for chain in (narrow, wide):
            chain.accept(token)
            chain.accept(int(logits.argmax()))


def test_a_window_beyond_the_context_costs_no_more_than_the_context() -> None:
    before = psutil.Process().memory_info().rss
    chain = SamplerChain(SamplingParams(repeat_penalty=1.3, repeat_last_n=(1 << 31) - 1), 7, N_VOCAB, 4096)
    assert psutil.Process().memory_info().rss - before < 64 << 20
    assert chain.pick(random_logits(1), Candidates(N_VOCAB)) >= 0

"""TGI's pipeline against its definitions, written out token by token."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from jan_serve.core.sampling import SamplingParams
from jan_serve.engine.warped_sampling import WarpedSampler

Floats = npt.NDArray[np.float32]
SIZE = 3000


def logits_of(seed: int, spread: float = 3.0) -> Floats:
    return (np.random.default_rng(seed).standard_normal(SIZE) * spread).astype(np.float32)


def warper(**fields: Any) -> WarpedSampler:
    return WarpedSampler(SamplingParams(pipeline="warped", **fields), 1, SIZE)


def softmax(values: Floats) -> list[float]:
    weights = [math.exp(float(value) - float(values.max())) for value in values]
    total = sum(weights)
    return [weight / total for weight in weights]


def kept(warped: Floats) -> set[int]:
    return set(np.flatnonzero(warped > -np.inf).tolist())


def test_penalties_are_told_by_the_whole_context() -> None:
    penalty, share = 1.7, 0.9
    subject = warper(repeat_penalty=penalty, frequency_penalty=share)
    tokens = [5, 7, 5, 11, 5, 7]
    subject.observe_prompt(np.array(tokens[:4], np.int32))
    for token in tokens[4:]:
        subject.observe(token)
    logits = logits_of(1)
    expected = logits.copy()
    for token, count in Counter(tokens).items():
        value = expected[token]
        value = value * penalty if value < 0 else value / penalty
        expected[token] = value - share * count / len(tokens)
    subject.penalise(logits)
    np.testing.assert_allclose(logits, expected, rtol=1e-5)


def test_without_penalties_nothing_changes() -> None:
    subject = warper()
    subject.observe_prompt(np.array([1, 2], np.int32))
    logits = logits_of(2)
    before = logits.copy()
    subject.penalise(logits)
    assert (logits == before).all()


def test_the_temperature_comes_first() -> None:
    logits = logits_of(3, 1.0)
    hot, cold = (kept(warper(temperature=t, top_p=0.8).warp(logits)) for t in (2.0, 0.5))
    assert len(hot) > len(cold) > 1


@pytest.mark.parametrize("top_k", [1, 40, SIZE, SIZE + 5])
def test_top_k_keeps_the_best_and_what_equals_the_last_of_them(top_k: int) -> None:
    logits = np.round(logits_of(4))
    warped = warper(temperature=1.0, top_k=top_k).warp(logits)
    least = sorted(logits.tolist())[-min(top_k, SIZE)]
    assert kept(warped) == {i for i, value in enumerate(logits.tolist()) if value >= least}


@pytest.mark.parametrize("top_p", [0.01, 0.5, 0.95, 0.999999])
@pytest.mark.parametrize("spread", [0.01, 3.0, 20.0])
def test_top_p_drops_the_least_likely_tokens_of_the_rest(top_p: float, spread: float) -> None:
    logits = logits_of(5, spread)
    chances = softmax(logits)
    rising = sorted(range(SIZE), key=lambda i: chances[i])
    below, expected = 0.0, set[int]()
    for token in rising:
        below += chances[token]
        if below > 1 - top_p:
            expected.add(token)
    expected.add(rising[-1])
    found = kept(warper(temperature=1.0, top_p=top_p).warp(logits))
    # Sums in another order may move the bound by a token.
    assert len(found ^ expected) <= 1


@pytest.mark.parametrize("mass", [0.05, 0.5, 0.95])
def test_typical_p_keeps_what_surprises_as_much_as_expected(mass: float) -> None:
    logits = logits_of(6)
    chances = softmax(logits)
    entropy = -sum(p * math.log(p) for p in chances)
    order = sorted(range(SIZE), key=lambda i: abs(-math.log(chances[i]) - entropy))
    total, expected = 0.0, set[int]()
    for token in order:
        expected.add(token)
        total += chances[token]
        if total >= mass:
            break
    assert len(kept(warper(temperature=1.0, typical_p=mass).warp(logits)) ^ expected) <= 1


def test_draws_follow_the_probabilities_and_the_seed() -> None:
    logits = np.full(SIZE, -np.inf, np.float32)
    logits[[3, 9, 20]] = np.log(np.array([0.5, 0.3, 0.2], np.float32))
    subject = warper(temperature=1.0)
    drawn = [subject.draw(subject.warp(logits)) for _ in range(4000)]
    shares = {token: count / len(drawn) for token, count in Counter(drawn).items()}
    assert shares == pytest.approx({3: 0.5, 9: 0.3, 20: 0.2}, abs=0.03)
    again = warper(temperature=1.0)
    assert [again.draw(again.warp(logits)) for _ in range(50)] == drawn[:50]
    large = WarpedSampler(SamplingParams(pipeline="warped"), (1 << 64) - 1, SIZE)
    assert [large.draw(logits) for _ in range(50)] != drawn[:50]


def test_greedy_takes_the_best_and_leaves_the_logits() -> None:
    logits = logits_of(7)
    subject = warper(temperature=0.0, top_k=3, top_p=0.5)
    assert subject.warp(logits) is logits
    assert subject.draw(logits) == int(logits.argmax())


@pytest.mark.parametrize("temperature", [1e-300, 1e-9, 1e9, 1e300])
@pytest.mark.parametrize("repeat", [1e-308, 1e308])
def test_extremes_stay_finite(temperature: float, repeat: float) -> None:
    subject = warper(temperature=temperature, repeat_penalty=repeat, top_p=0.9, typical_p=0.9)
    subject.observe_prompt(np.arange(10, dtype=np.int32))
    logits = logits_of(8)
    subject.penalise(logits)
    assert np.isfinite(logits).all()
    warped = subject.warp(logits)
    assert np.isfinite(warped.max())
    assert np.isfinite(warped[subject.draw(warped)])

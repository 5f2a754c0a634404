"""Sampler: biases, the end of the text, grammars and log-probabilities. Sampling itself: integration/engine."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from jan_serve.core.request import SamplingParams, StopConditions
from jan_serve.engine.constraint.grammar_executor import GrammarExecutor
from jan_serve.engine.llama.chain import Candidates
from jan_serve.engine.sampler import Sampler, WarpedSampler, score
from jan_serve.errors import EngineFailure, GrammarTooComplex
from jan_serve.ipc.messages import EngineRequest
from tests.unit.engine.small_vocab import EOS, LETTERS, small_vocab

Floats = npt.NDArray[np.float32]


class Word(GrammarExecutor):
    """A grammar of one word; its first `forced_letters` are forced."""

    def __init__(self, word: str, forced_letters: int = 0) -> None:
        self.rest = word
        self.forced_letters = forced_letters

    def allows(self, token: int) -> bool:
        return LETTERS[token] == self.rest[:1]

    def mask(self, logits: Floats) -> Floats:
        allowed = [self.allows(token) for token in range(len(logits))]
        return np.where(allowed, logits, np.float32(-np.inf))

    def accept(self, token: int) -> None:
        assert self.allows(token)
        self.rest = self.rest[1:]

    def forced(self) -> list[int]:
        text, self.rest = self.rest[: self.forced_letters], self.rest[self.forced_letters :]
        self.forced_letters = 0
        return [LETTERS.index(letter) for letter in text]

    @property
    def is_complete(self) -> bool:
        return not self.rest


def sampler_of(
    grammar: Word | None = None,
    *,
    logprobs: int | None = None,
    jump_forward: bool = True,
    stopping: StopConditions | None = None,
    **params: Any,
) -> Sampler:
    fields: dict[str, Any] = {"temperature": 0.0, **params}
    request = EngineRequest(
        id=1,
        prompt=("a",),
        cache_salt="",
        sampling=SamplingParams(**fields),
        stopping=stopping or StopConditions(),
        logprobs=logprobs,
    )
    vocab = small_vocab()
    candidates = Candidates(vocab.n_tokens)
    return Sampler(request, 1, vocab, 64, candidates, grammar=grammar, jump_forward=jump_forward)


def logits_of(**values: float) -> Floats:
    """Logits by letter; `end` is EOS. All others are 0."""
    logits = np.zeros(len(LETTERS), np.float32)
    for letter, value in values.items():
        logits[EOS if letter == "end" else LETTERS.index(letter)] = value
    return logits


def picked(sampler: Sampler, logits: Floats) -> str:
    return LETTERS[sampler.sample(logits).token]


def test_eos_waits_for_min_tokens() -> None:
    sampler = sampler_of(stopping=StopConditions(min_tokens=1))
    assert picked(sampler, logits_of(end=9, a=1)) == "a"
    assert picked(sampler, logits_of(end=9, a=1)) == ">"


def test_eos_is_ignored_on_request() -> None:
    sampler = sampler_of(stopping=StopConditions(ignore_eos=True))
    assert [picked(sampler, logits_of(end=9, a=1)) for _ in range(3)] == ["a"] * 3


def test_a_complete_grammar_may_end_before_min_tokens() -> None:
    sampler = sampler_of(Word(">"), stopping=StopConditions(min_tokens=5))
    assert picked(sampler, logits_of(a=9)) == ">"


@pytest.mark.parametrize("pipeline", ["llama.cpp", "warped"])
@pytest.mark.parametrize(
    ("temperature", "grammar", "texts"),
    [(0.0, None, "baa"), (1.0, None, "baa"), (0.0, Word("aaa"), "aaa"), (1.0, Word("baa"), "baa")],
)
def test_a_forbidden_token_is_not_drawn_next_unless_it_must_be(
    pipeline: str, temperature: float, grammar: Word | None, texts: str
) -> None:
    grammar = None if grammar is None else Word(grammar.rest)
    sampler = sampler_of(grammar, pipeline=pipeline, temperature=temperature)
    sampler.forbid_next(LETTERS.index("a"))
    assert "".join(picked(sampler, logits_of(a=90, b=50)) for _ in range(3)) == texts


@pytest.mark.parametrize("pipeline", ["llama.cpp", "warped"])
def test_a_rejected_choice_is_redrawn_among_the_allowed_tokens(pipeline: str) -> None:
    sampler = sampler_of(Word("cab"), pipeline=pipeline)
    assert "".join(picked(sampler, logits_of(a=9, b=5, c=1)) for _ in range(3)) == "cab"
    assert sampler.is_complete


@pytest.mark.parametrize("pipeline", ["llama.cpp", "warped"])
def test_a_grammar_that_no_token_continues_fails_its_request(pipeline: str) -> None:
    with pytest.raises(GrammarTooComplex):
        sampler_of(Word("z"), pipeline=pipeline).sample(logits_of(a=9))


@pytest.mark.parametrize("word", [None, "ab"])
@pytest.mark.parametrize(
    "fields", [{}, {"pipeline": "warped"}, {"mirostat_mode": 2, "temperature": 1.0}], ids=str
)
@pytest.mark.parametrize("value", [math.nan, -math.inf, math.inf])
def test_logits_that_are_not_finite_are_an_engine_failure(
    value: float, fields: dict[str, Any], word: str | None
) -> None:
    with pytest.raises(EngineFailure, match="no finite logit"):
        sampler_of(Word(word) if word else None, **fields).sample(np.full(len(LETTERS), value, np.float32))


@pytest.mark.parametrize(
    ("fields", "forced"), [({}, 2), ({"logprobs": 1}, 0), ({"jump_forward": False}, 0)], ids=str
)
def test_forced_tokens_are_taken_without_sampling_unless_each_is_needed(
    fields: dict[str, Any], forced: int
) -> None:
    assert len(sampler_of(Word("abc", 2), **fields).take_forced()) == forced


def test_log_probabilities_are_of_the_raw_logits() -> None:
    sampler = sampler_of(logprobs=2, logit_bias={LETTERS.index("b"): 100.0})
    sampled = sampler.sample(logits_of(a=2, c=1))
    total = math.log(math.exp(2) + math.exp(1) + len(LETTERS) - 2)
    assert LETTERS[sampled.token] == "b"
    assert sampled.logprob == pytest.approx(0 - total)
    assert [(each.piece, each.logprob) for each in sampled.top] == [
        (b"a", pytest.approx(2 - total)),
        (b"c", pytest.approx(1 - total)),
    ]


def test_ties_with_the_last_top_token_are_included_on_request() -> None:
    logits = logits_of(a=2, b=1, c=1, d=1)
    logits[EOS] = -np.inf
    _, top = score(logits, 2, 2, small_vocab(), ties=True)
    assert [each.piece for each in top] == [b"a", b"b", b"c", b"d"]
    _, top = score(logits, 2, len(LETTERS) + 5, small_vocab(), ties=True)
    assert len(top) == len(LETTERS) - 1, "impossible tokens are left out"
    assert score(logits, 2, 0, small_vocab())[1] == ()


Logits = npt.NDArray[np.float32]
SIZE = 3000


def warped_logits_of(seed: int, spread: float = 3.0) -> Logits:
    return (np.random.default_rng(seed).standard_normal(SIZE) * spread).astype(np.float32)


def warper(**fields: Any) -> WarpedSampler:
    return WarpedSampler(SamplingParams(pipeline="warped", **fields), 1, SIZE)


def softmax(values: Logits) -> list[float]:
    weights = [math.exp(float(value) - float(values.max())) for value in values]
    total = sum(weights)
    return [weight / total for weight in weights]


def kept(warped: Logits) -> set[int]:
    return set(np.flatnonzero(warped > -np.inf).tolist())


def test_penalties_are_told_by_the_whole_context() -> None:
    penalty, share = 1.7, 0.9
    subject = warper(repeat_penalty=penalty, frequency_penalty=share)
    tokens = [5, 7, 5, 11, 5, 7]
    subject.observe_prompt(np.array(tokens[:4], np.int32))
    for token in tokens[4:]:
        subject.observe(token)
    logits = warped_logits_of(1)
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
    logits = warped_logits_of(2)
    before = logits.copy()
    subject.penalise(logits)
    assert (logits == before).all()


@pytest.mark.parametrize("top_k", [1, 40, SIZE, SIZE + 5])
def test_top_k_keeps_the_best_and_what_equals_the_last_of_them(top_k: int) -> None:
    logits = np.round(warped_logits_of(4))
    warped = warper(temperature=1.0, top_k=top_k).warp(logits)
    least = sorted(logits.tolist())[-min(top_k, SIZE)]
    assert kept(warped) == {i for i, value in enumerate(logits.tolist()) if value >= least}


@pytest.mark.parametrize("top_p", [0.01, 0.5, 0.95, 0.999999])
@pytest.mark.parametrize("spread", [0.01, 3.0, 20.0])
def test_top_p_drops_the_least_likely_tokens_of_the_rest(top_p: float, spread: float) -> None:
    logits = warped_logits_of(5, spread)
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
    logits = warped_logits_of(6)
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


@pytest.mark.parametrize("temperature", [1e-300, 1e-9, 1e9, 1e300])
@pytest.mark.parametrize("repeat", [1e-308, 1e308])
def test_extremes_stay_finite(temperature: float, repeat: float) -> None:
    subject = warper(temperature=temperature, repeat_penalty=repeat, top_p=0.9, typical_p=0.9)
    subject.observe_prompt(np.arange(10, dtype=np.int32))
    logits = warped_logits_of(8)
    subject.penalise(logits)
    assert np.isfinite(logits).all()
    warped = subject.warp(logits)
    assert np.isfinite(warped.max())
    assert np.isfinite(warped[subject.draw(warped)])

"""Sampler: biases, the end of the text, grammars and log-probabilities. Sampling itself: integration/engine."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from jan_serve.core.sampling import SamplingParams, StopConditions
from jan_serve.engine.constraint.grammar_executor import GrammarExecutor
from jan_serve.engine.llama.chain import Candidates
from jan_serve.engine.sampler import Sampler, score
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


def test_a_bias_changes_the_choice() -> None:
    bias = {LETTERS.index("b"): 5.0, LETTERS.index("a"): -math.inf}
    assert picked(sampler_of(logit_bias=bias), logits_of(a=9, c=3)) == "b"


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
def test_a_rejected_choice_is_redrawn_among_the_allowed_tokens(pipeline: str) -> None:
    sampler = sampler_of(Word("cab"), pipeline=pipeline)
    assert "".join(picked(sampler, logits_of(a=9, b=5, c=1)) for _ in range(3)) == "cab"
    assert sampler.is_complete


@pytest.mark.parametrize("pipeline", ["llama.cpp", "warped"])
def test_a_grammar_that_no_token_continues_fails_its_request(pipeline: str) -> None:
    with pytest.raises(GrammarTooComplex):
        sampler_of(Word("z"), pipeline=pipeline).sample(logits_of(a=9))


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_logits_that_are_not_finite_are_an_engine_failure(value: float) -> None:
    with pytest.raises(EngineFailure, match="no finite logit"):
        sampler_of().sample(np.full(len(LETTERS), value, np.float32))


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

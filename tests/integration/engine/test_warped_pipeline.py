"""The `warped` pipeline and the watermark in a real worker."""

from __future__ import annotations

import math

import pytest

from jan_serve.core.constraint import CompiledGrammar
from jan_serve.core.sampling import Watermark
from tests.support.watermark import z_score
from tests.support.worker import Worker

pytestmark = pytest.mark.integration

PROMPT = "the people said"
VOCABULARY = 566


def test_greedy_choices_are_those_of_the_other_pipeline(llama: Worker) -> None:
    plain = llama.run_one(PROMPT, max_tokens=30, logprobs=3).choice
    warped = llama.run_one(PROMPT, max_tokens=30, logprobs=3, pipeline="warped").choice
    assert [info.id for info in warped.tokens] == [info.id for info in plain.tokens]
    for one, other in zip(warped.tokens, plain.tokens, strict=True):
        assert one.logprob == pytest.approx(other.logprob, abs=1e-5)


def test_log_probabilities_are_of_what_was_drawn_from(llama: Worker) -> None:
    fields = {"temperature": 1.0, "top_k": 2, "seed": 3, "logprobs": 5, "pipeline": "warped"}
    for info in llama.run_one(PROMPT, max_tokens=20, **fields).choice.tokens:
        assert info.logprob is not None
        assert info.id in [entry.id for entry in info.top]
        assert sum(math.exp(entry.logprob) for entry in info.top) == pytest.approx(1.0, abs=1e-4)


def test_tokens_that_a_grammar_leaves_no_choice_about_are_certain(llama: Worker) -> None:
    grammar = CompiledGrammar(gbnf='root ::= "abc"', lark='start: "abc"')
    choice = llama.run_one(PROMPT, max_tokens=20, logprobs=0, pipeline="warped", grammar=grammar).choice
    assert choice.text == "abc"
    # The model chooses how to split the letters into tokens; each but the last may be one of a few.
    assert choice.tokens[-1].logprob == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    "fields", [{"top_p": 0.6}, {"typical_p": 0.5}, {"top_k": 7}, {"repeat_penalty": 1.6}]
)
def test_seeds_replay(llama: Worker, fields: dict[str, float]) -> None:
    llama.run_one(PROMPT, max_tokens=1)
    first, other, again = (
        llama.run_one(PROMPT, max_tokens=30, temperature=1.0, seed=seed, pipeline="warped", **fields)
        for seed in ((1 << 63) + 5, 2, (1 << 63) + 5)
    )
    assert again.text == first.text
    assert other.text != first.text
    assert first.choice.end.seed == (1 << 63) + 5


def test_a_frequency_penalty_ends_repetition_with_time(llama: Worker) -> None:
    plain, penalised = (
        llama.run_one(PROMPT, max_tokens=60, logprobs=0, pipeline="warped", repeat_penalty=penalty).choice
        for penalty in (1.0, 5.0)
    )
    assert len({info.id for info in penalised.tokens}) > len({info.id for info in plain.tokens})


@pytest.mark.parametrize("fields", [{}, {"temperature": 1.0, "seed": 5}], ids=["greedy", "drawn"])
@pytest.mark.parametrize("pipeline", ["warped", "llama.cpp"])
def test_the_watermark_is_found(llama: Worker, fields: dict[str, float], pipeline: str) -> None:
    asked = {"max_tokens": 200, "ignore_eos": True, "logprobs": 0, "pipeline": pipeline, **fields}
    plain = llama.run_one(PROMPT, **asked).choice
    marked = llama.run_one(PROMPT, watermark=Watermark(), **asked).choice
    assert marked.text != plain.text
    found = z_score([info.id for info in marked.tokens], VOCABULARY)
    assert found > 4
    assert z_score([info.id for info in plain.tokens], VOCABULARY) < found


def test_the_first_token_is_marked_by_the_end_of_the_prompt(llama: Worker) -> None:
    """A bias that leaves one token, whatever its logit, shows which tokens gain."""
    asked = {"max_tokens": 1, "logprobs": VOCABULARY, "pipeline": "warped"}
    plain = llama.run_one(PROMPT, **asked).choice.tokens[0]
    marked = llama.run_one(PROMPT, watermark=Watermark(), **asked).choice.tokens[0]
    gains = {entry.id: entry.logprob for entry in marked.top}
    for entry in plain.top:
        gains[entry.id] -= entry.logprob
    high, low = max(gains.values()), min(gains.values())
    assert high - low == pytest.approx(2.0, abs=1e-3)
    assert sum(gain > (high + low) / 2 for gain in gains.values()) == VOCABULARY // 2

"""Sampling parameters: each runs, does what its name says, and gives the same text for the same seed."""

from __future__ import annotations

import math
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jan_serve.core.constraint import CompiledGrammar, Guide
from jan_serve.core.request import SamplingParams, Watermark
from jan_serve.engine.llama.bindings import lib
from jan_serve.engine.llama.chain import Candidates, SamplerChain, likely_ids
from jan_serve.engine.penalties import Penalties
from jan_serve.errors import InvalidRequest
from tests.support.engine.worker import Worker, generate, running_worker
from tests.support.gguf.models import EXACT
from tests.support.watermark import z_score

pytestmark = pytest.mark.integration

PROMPT = "the people said"

SAMPLERS: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 0.7},
    "high temperature": {"temperature": 2.0},
    "top_k": {"temperature": 1.0, "top_k": 5},
    "top_p": {"temperature": 1.0, "top_p": 0.5},
    "min_p": {"temperature": 1.0, "min_p": 0.2},
    "typical_p": {"temperature": 1.0, "typical_p": 0.5},
    "repeat_penalty": {"temperature": 1.0, "repeat_penalty": 1.5},
    "presence_penalty": {"temperature": 1.0, "presence_penalty": 1.5},
    "frequency_penalty": {"temperature": 1.0, "frequency_penalty": 1.5},
    "penalties over the whole context": {"temperature": 1.0, "repeat_penalty": 1.5, "repeat_last_n": -1},
    "mirostat 1": {"temperature": 1.0, "mirostat_mode": 1},
    "mirostat 2": {"temperature": 1.0, "mirostat_mode": 2},
    "all truncations": {"temperature": 0.9, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "typical_p": 0.9},
    "bias": {"temperature": 1.0, "logit_bias": {40: 3.0, 41: -3.0}},
}


@pytest.fixture(scope="module")
def undrafted(exact_llama: Path) -> Generator[Worker]:
    """Without drafts: whether one pays is measured, so the shapes of batches depend on the time that steps take."""
    with running_worker(exact_llama, n_ctx=512, prompt_lookup="off", **EXACT) as worker:
        yield worker


@pytest.mark.parametrize("fields", SAMPLERS.values(), ids=SAMPLERS.keys())
def test_same_seed_same_text_and_another_seed_another(undrafted: Worker, fields: dict[str, Any]) -> None:
    # So that every run below takes the prompt from the cache: see ADR 0008.
    undrafted.run_one(PROMPT, max_tokens=1)
    # One after the other: another batch shape changes the order of additions, which may change a draw.
    first = undrafted.run_one(PROMPT, max_tokens=40, seed=1, **fields)
    other = undrafted.run_one(PROMPT, max_tokens=40, seed=2, **fields)
    again = undrafted.run_one(PROMPT, max_tokens=40, seed=1, **fields)
    assert again.text == first.text
    assert other.text != first.text
    assert first.choice.end.completion_tokens == 40


def test_each_sampler_changes_what_temperature_alone_gives(llama: Worker) -> None:
    plain = llama.run_one(PROMPT, max_tokens=40, seed=1, temperature=1.0).text
    names = [name for name in SAMPLERS if name not in ("temperature", "high temperature")]
    results = llama.run(*(generate(PROMPT, max_tokens=40, seed=1, **SAMPLERS[name]) for name in names))
    assert [name for name, result in zip(names, results, strict=True) if result.text == plain] == []


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 1.0, "top_k": 1},
        {"temperature": 1.0, "top_p": 1e-6},
        {"temperature": 1.0, "min_p": 1.0},
        {"temperature": 1e-4},
        {"temperature": 0.0, "top_k": 40, "top_p": 0.5, "mirostat_mode": 2},
    ],
    ids=["top_k 1", "top_p 0", "min_p 1", "cold", "temperature 0 wins"],
)
def test_a_choice_of_one_is_greedy(llama: Worker, fields: dict[str, Any]) -> None:
    greedy = llama.run_one(PROMPT, max_tokens=40)
    assert llama.run_one(PROMPT, max_tokens=40, seed=9, **fields).text == greedy.text


@pytest.mark.parametrize(
    ("kind", "allowed"), [({"top_k": 3}, 3), ({"top_k": 566}, 566), ({"top_k": 10_000}, 566)]
)
def test_top_k_keeps_to_the_k_best(llama: Worker, kind: dict[str, Any], allowed: int) -> None:
    fields = {"temperature": 5.0, "seed": 4, "max_tokens": 40, "logprobs": min(allowed, 566), **kind}
    choice = llama.run_one(PROMPT, **fields).choice
    for info in choice.tokens:
        assert info.id in [top.id for top in info.top[:allowed]]


def test_seeds_of_64_bits_and_below_zero_are_taken(llama: Worker) -> None:
    for seed in (-1, 2**32 - 1, 2**32, 2**63 - 1, -(2**63)):
        first, again = (llama.run_one(PROMPT, temperature=1.0, seed=seed) for _ in range(2))
        assert first.text == again.text
        assert first.choice.end.seed == seed


def test_a_seed_that_llama_cpp_takes_for_random_is_fixed_too(llama: Worker) -> None:
    """0xFFFFFFFF is LLAMA_DEFAULT_SEED, and choices count up to it."""
    texts = [llama.run_one(PROMPT, temperature=1.0, seed=2**32 - 2, n=3).texts for _ in range(2)]
    assert texts[0] == texts[1]
    assert len(set(texts[0])) == 3


def token(llama: Worker, text: str) -> int:
    (found,) = llama.tokenize(text).tokens
    return found


def test_a_bias_of_100_forces_and_of_minus_100_forbids(llama: Worker) -> None:
    z, greedy = token(llama, "Z"), llama.run_one(PROMPT, return_tokens=True).choice
    assert llama.run_one(PROMPT, logit_bias={z: 100.0}).text == "Z" * 16
    assert llama.run_one(PROMPT, logit_bias={z: 100.0}, temperature=1.5, seed=1).text == "Z" * 16
    forbidden = {info.id: -100.0 for info in greedy.tokens}
    other = llama.run_one(PROMPT, logit_bias=forbidden, return_tokens=True).choice
    assert not set(other.ids) & set(forbidden)
    sampled = llama.run_one(PROMPT, logit_bias=forbidden, return_tokens=True, temperature=1.5, seed=1).choice
    assert not set(sampled.ids) & set(forbidden)


def test_a_bias_to_an_end_token_ends_the_text(llama: Worker) -> None:
    (eog, *_) = llama.facts.eog_token_ids
    choice = llama.run_one(PROMPT, logit_bias={eog: 100.0}).choice
    assert (choice.text, choice.end.reason, choice.end.eos, choice.end.completion_tokens) == (
        "",
        "stop",
        True,
        0,
    )


@pytest.mark.parametrize("bias", [float("nan"), float("inf")])
def test_a_bias_that_is_no_finite_number_is_refused(llama: Worker, bias: float) -> None:
    error = llama.run_one(PROMPT, logit_bias={5: bias}).error
    assert isinstance(error, InvalidRequest)
    assert error.param == "logit_bias"
    assert "token 5" in error.message


def test_a_token_with_a_bias_of_minus_infinity_is_banned(llama: Worker) -> None:
    best = llama.run_one(PROMPT, return_tokens=True, max_tokens=1).choice.ids
    for fields in ({}, {"temperature": 1.0, "seed": 3}, {"temperature": 1.0, "seed": 3, "mirostat_mode": 1}):
        choice = llama.run_one(
            PROMPT, logit_bias={best[0]: float("-inf")}, return_tokens=True, max_tokens=60, **fields
        ).choice
        assert best[0] not in choice.ids


def test_penalties_look_back_into_the_prompt(llama: Worker) -> None:
    """A presence penalty of this size rules a token out wherever it was seen."""
    first = llama.run_one(PROMPT, return_tokens=True, max_tokens=1).choice.ids[0]
    prompt = (first, *llama.tokenize(PROMPT).tokens)
    free = llama.run_one(prompt, return_tokens=True, max_tokens=60).choice.ids
    penalised = llama.run_one(
        prompt, return_tokens=True, max_tokens=60, presence_penalty=50.0, repeat_last_n=-1
    ).choice.ids
    assert set(free) & set(prompt) or len(set(free)) < len(free), "the prompt tempts to no repetition"
    assert not set(penalised) & set(prompt)
    assert len(set(penalised)) == len(penalised)


def test_penalties_forget_what_is_further_back_than_repeat_last_n(llama: Worker) -> None:
    fields = {"presence_penalty": 50.0, "return_tokens": True, "max_tokens": 60}
    ids = llama.run_one(PROMPT, repeat_last_n=4, **fields).choice.ids
    for i, one in enumerate(ids):
        assert one not in ids[max(0, i - 4) : i]
    assert len(set(ids)) < len(ids)


def test_repeat_last_n_of_zero_switches_penalties_off(llama: Worker) -> None:
    plain = llama.run_one(PROMPT, max_tokens=40).text
    assert llama.run_one(PROMPT, max_tokens=40, repeat_penalty=2.0, repeat_last_n=0).text == plain


def test_markers_of_a_format_are_not_penalised(llama: Worker) -> None:
    """The prompt is full of a marker, which the bias makes the best choice; a penalty would undo that."""
    [marker] = llama.tokenize("<|im_start|>", add_special=False).tokens
    fields: dict[str, Any] = {
        "max_tokens": 1,
        "temperature": 0.0,
        "logprobs": 0,
        "logit_bias": {marker: 50.0},
    }
    chosen = llama.run_one("<|im_start|>" * 20, **fields, repeat_penalty=1000.0, repeat_last_n=-1)
    assert [token.id for token in chosen.choice.tokens] == [marker]


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


def test_choice_equals_that_over_the_whole_vocabulary() -> None:
    n_vocab = 20_000  # more blocks of 256 than the top-k
    params = SamplingParams(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05)
    candidates = Candidates(n_vocab)
    narrow, wide = (SamplerChain(params, 7, n_vocab) for _ in range(2))
    # No parameters make a chain with a top-k look at all tokens.
    wide._keeps = 0  # pyright: ignore[reportPrivateUsage]
    for step in range(60):
        logits = random_logits(step, n_vocab)
        assert narrow.pick(logits, candidates) == wide.pick(logits, candidates)


PENALTIES: dict[str, dict[str, Any]] = {
    "repeat": {"repeat_penalty": 1.3},
    "all": {"repeat_penalty": 1.5, "presence_penalty": 1.0, "frequency_penalty": 0.5},
    "some raise": {"repeat_penalty": 0.7, "presence_penalty": -2.0},
    "a short window": {"repeat_penalty": 1.3, "frequency_penalty": 0.5, "repeat_last_n": 3},
    "the whole context": {"repeat_penalty": 1.3, "repeat_last_n": -1},
    "more than the context": {"repeat_penalty": 1.3, "repeat_last_n": (1 << 31) - 1},
}


@pytest.mark.parametrize("fields", PENALTIES.values(), ids=PENALTIES.keys())
def test_penalties_are_those_of_llama_cpp(fields: dict[str, Any]) -> None:
    n_ctx, params, rng = 50, SamplingParams(**fields), np.random.default_rng(3)
    window = min(params.repeat_last_n, n_ctx) if params.repeat_last_n >= 0 else n_ctx
    reference = lib.llama_sampler_init_penalties(
        N_VOCAB, window, params.repeat_penalty, params.frequency_penalty, params.presence_penalty
    )
    ours, candidates = Penalties(params, n_ctx), Candidates(N_VOCAB)
    for step in range(120):
        logits = random_logits(step)
        logits[rng.integers(N_VOCAB, size=9)] = -np.inf
        candidates.fill(logits)
        lib.llama_sampler_apply(reference, candidates.reference)
        ours.apply(logits)
        expected = np.array([candidates.raw.data[i].logit for i in range(N_VOCAB)], np.float32)
        np.testing.assert_allclose(logits, expected, rtol=3e-7)
        token = int(rng.integers(40))
        ours.observe(token)
        lib.llama_sampler_accept(reference, token)
    lib.llama_sampler_free(reference)


def test_no_penalty_makes_a_logit_infinite() -> None:
    ours = Penalties(SamplingParams(repeat_penalty=1e-38), 50)
    for token in range(3):
        ours.observe(token)
    logits = np.array([5.0, -5.0, -np.inf, 1.0], np.float32)
    ours.apply(logits)
    assert (logits.argmax(), logits.max() < np.inf, logits[2], logits[3]) == (0, True, -np.inf, 1.0)


WARPED_PROMPT = "the people said"
VOCABULARY = 566


def test_greedy_choices_are_those_of_the_other_pipeline(llama: Worker) -> None:
    plain = llama.run_one(WARPED_PROMPT, max_tokens=30, logprobs=3).choice
    warped = llama.run_one(WARPED_PROMPT, max_tokens=30, logprobs=3, pipeline="warped").choice
    assert [info.id for info in warped.tokens] == [info.id for info in plain.tokens]
    for one, other in zip(warped.tokens, plain.tokens, strict=True):
        assert one.logprob == pytest.approx(other.logprob, abs=1e-5)


def test_log_probabilities_are_of_what_was_drawn_from(llama: Worker) -> None:
    fields = {"temperature": 1.0, "top_k": 2, "seed": 3, "logprobs": 5, "pipeline": "warped"}
    for info in llama.run_one(WARPED_PROMPT, max_tokens=20, **fields).choice.tokens:
        assert info.logprob is not None
        assert info.id in [entry.id for entry in info.top]
        assert sum(math.exp(entry.logprob) for entry in info.top) == pytest.approx(1.0, abs=1e-4)


def test_tokens_that_a_grammar_leaves_no_choice_about_are_certain(llama: Worker) -> None:
    grammar = CompiledGrammar(lark='start: "abc"')
    choice = llama.run_one(
        WARPED_PROMPT, max_tokens=20, logprobs=0, pipeline="warped", guide=Guide(grammar=grammar)
    ).choice
    assert choice.text == "abc"
    # The model chooses how to split the letters into tokens; each but the last may be one of a few.
    assert choice.tokens[-1].logprob == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    "fields", [{"top_p": 0.6}, {"typical_p": 0.5}, {"top_k": 7}, {"repeat_penalty": 1.6}]
)
def test_seeds_replay(llama: Worker, fields: dict[str, float]) -> None:
    llama.run_one(WARPED_PROMPT, max_tokens=1)
    first, other, again = (
        llama.run_one(WARPED_PROMPT, max_tokens=30, temperature=1.0, seed=seed, pipeline="warped", **fields)
        for seed in ((1 << 63) + 5, 2, (1 << 63) + 5)
    )
    assert again.text == first.text
    assert other.text != first.text
    assert first.choice.end.seed == (1 << 63) + 5


def test_a_frequency_penalty_ends_repetition_with_time(llama: Worker) -> None:
    plain, penalised = (
        llama.run_one(
            WARPED_PROMPT, max_tokens=60, logprobs=0, pipeline="warped", repeat_penalty=penalty
        ).choice
        for penalty in (1.0, 5.0)
    )
    assert len({info.id for info in penalised.tokens}) > len({info.id for info in plain.tokens})


@pytest.mark.parametrize("fields", [{}, {"temperature": 1.0, "seed": 5}], ids=["greedy", "drawn"])
@pytest.mark.parametrize("pipeline", ["warped", "llama.cpp"])
def test_the_watermark_is_found(llama: Worker, fields: dict[str, float], pipeline: str) -> None:
    asked = {"max_tokens": 200, "ignore_eos": True, "logprobs": 0, "pipeline": pipeline, **fields}
    plain = llama.run_one(WARPED_PROMPT, **asked).choice
    marked = llama.run_one(WARPED_PROMPT, watermark=Watermark(), **asked).choice
    assert marked.text != plain.text
    found = z_score([info.id for info in marked.tokens], VOCABULARY)
    assert found > 4
    assert z_score([info.id for info in plain.tokens], VOCABULARY) < found


def test_the_first_token_is_marked_by_the_end_of_the_prompt(llama: Worker) -> None:
    """A bias that leaves one token, whatever its logit, shows which tokens gain."""
    asked = {"max_tokens": 1, "logprobs": VOCABULARY, "pipeline": "warped"}
    plain = llama.run_one(WARPED_PROMPT, **asked).choice.tokens[0]
    marked = llama.run_one(WARPED_PROMPT, watermark=Watermark(), **asked).choice.tokens[0]
    gains = {entry.id: entry.logprob for entry in marked.top}
    for entry in plain.top:
        gains[entry.id] -= entry.logprob
    high, low = max(gains.values()), min(gains.values())
    assert high - low == pytest.approx(2.0, abs=1e-3)
    assert sum(gain > (high + low) / 2 for gain in gains.values()) == VOCABULARY // 2

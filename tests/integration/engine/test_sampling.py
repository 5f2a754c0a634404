"""Sampling parameters: each runs, does what its name says, and gives the same text for the same seed."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from jan_serve.errors import InvalidRequest
from tests.support.models import EXACT
from tests.support.worker import Worker, generate, running_worker

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

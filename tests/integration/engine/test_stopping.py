"""The end of a sequence, and that its text ends exactly there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jan_serve.errors import InvalidRequest
from tests.support.engine.worker import Worker, generate, running_worker
from tests.support.gguf.models import EXACT

pytestmark = pytest.mark.integration

PROMPT = "water was great"
LENGTH = 40


@pytest.fixture
def whole(llama: Worker) -> str:
    """The answer without a stop."""
    text = llama.run_one(PROMPT, max_tokens=LENGTH).text
    assert len(text) > 20
    return text


def first_end(text: str, stop: str) -> str:
    """Text up to the first occurrence."""
    return text[: text.index(stop)]


def test_a_stop_string_ends_the_text_before_it(llama: Worker, whole: str) -> None:
    """Every piece of the answer, so that stops begin, end and go through tokens at all places."""
    stops = sorted({whole[i : i + size] for size in (1, 2, 3, 7) for i in range(len(whole) - size)})
    stops = [stop for stop in stops if "\ufffd" not in stop]
    results = llama.run(*(generate(PROMPT, max_tokens=LENGTH, stop=(stop,)) for stop in stops))
    for stop, result in zip(stops, results, strict=True):
        choice = result.choice
        assert choice.text == first_end(whole, stop)
        assert (choice.end.reason, choice.end.stop, choice.end.eos) == ("stop", stop, False)


def test_tokens_stop_with_the_text(llama: Worker, whole: str) -> None:
    stop = whole[10:13]
    choice = llama.run_one(PROMPT, max_tokens=LENGTH, stop=(stop,), logprobs=0).choice
    joined = b"".join(info.piece for info in choice.tokens)
    assert joined.decode("utf-8", "replace").startswith(choice.text)
    without_last = b"".join(info.piece for info in choice.tokens[:-1])
    assert len(without_last.decode("utf-8", "replace")) < len(choice.text)
    assert choice.end.completion_tokens >= len(choice.tokens)


def test_a_stop_token_ends_the_text_without_it(llama: Worker) -> None:
    plain = llama.run_one(PROMPT, max_tokens=LENGTH, return_tokens=True).choice
    wanted = plain.ids[7]
    first = plain.ids.index(wanted)
    choice = llama.run_one(
        PROMPT, max_tokens=LENGTH, return_tokens=True, stop_token_ids=(wanted, 9999 % llama.facts.n_vocab)
    ).choice
    assert choice.ids == plain.ids[:first]
    assert (choice.end.reason, choice.end.completion_tokens, choice.end.stop) == ("stop", first, None)


@pytest.mark.parametrize("stops", [{"stop_token_ids": (9999,)}, {"stop_token_ids": (-1,)}, {"n": 0}])
def test_wrong_values_are_refused(llama: Worker, stops: dict[str, Any]) -> None:
    error = llama.run_one(PROMPT, **stops).error
    assert isinstance(error, InvalidRequest)
    assert error.param == next(iter(stops))


@pytest.mark.parametrize("max_tokens", [1, 2, 17])
def test_max_tokens_ends_with_length(llama: Worker, max_tokens: int) -> None:
    result = llama.run_one(PROMPT, max_tokens=max_tokens, return_tokens=True)
    assert len(result.choice.tokens) == max_tokens
    assert (result.choice.end.reason, result.choice.end.completion_tokens) == ("length", max_tokens)
    assert result.usage.completion_tokens == max_tokens


def test_max_tokens_of_zero_computes_the_prompt_only(llama: Worker) -> None:
    result = llama.run_one(PROMPT, max_tokens=0, prompt_logprobs=1)
    assert (result.text, result.choice.end.reason, result.usage.completion_tokens) == ("", "length", 0)
    assert result.scored is not None
    assert len(result.scored.tokens) == result.usage.prompt_tokens


def test_the_server_ceiling_ends_what_has_no_limit(exact_llama: Path) -> None:
    with running_worker(exact_llama, n_ctx=256, max_tokens_ceiling=12, **EXACT) as worker:
        for max_tokens, length in ((None, 12), (50, 12), (5, 5)):
            choice = worker.run_one(PROMPT, max_tokens=max_tokens).choice
            assert (choice.end.completion_tokens, choice.end.reason) == (length, "length")


def test_without_any_limit_the_context_ends_the_text(llama: Worker) -> None:
    result = llama.run_one(PROMPT, max_tokens=None)
    assert result.usage.prompt_tokens + result.usage.completion_tokens == llama.facts.n_ctx
    assert result.choice.end.reason == "length"


def test_min_tokens_holds_the_end_back(llama: Worker) -> None:
    bias = dict.fromkeys(llama.facts.eog_token_ids, 100.0)
    for fields in ({}, {"temperature": 1.0, "seed": 1}):
        choice = llama.run_one(PROMPT, min_tokens=6, logit_bias=bias, max_tokens=20, **fields).choice
        assert (choice.end.completion_tokens, choice.end.eos, choice.end.reason) == (6, True, "stop")


def test_ignore_eos_runs_to_the_limit(llama: Worker) -> None:
    bias = dict.fromkeys(llama.facts.eog_token_ids, 100.0)
    for fields in ({}, {"temperature": 1.0, "seed": 1}):
        choice = llama.run_one(
            PROMPT, ignore_eos=True, logit_bias=bias, max_tokens=20, return_tokens=True, **fields
        ).choice
        assert (choice.end.completion_tokens, choice.end.eos, choice.end.reason) == (20, False, "length")
        assert not set(choice.ids) & set(llama.facts.eog_token_ids)


def test_control_tokens_are_text_only_when_asked_for(llama: Worker) -> None:
    fim = llama.facts.special_tokens["fim_pre"]
    fields: dict[str, Any] = {"logit_bias": {fim.id: 100.0}, "max_tokens": 2, "return_tokens": True}
    hidden = llama.run_one(PROMPT, **fields).choice
    shown = llama.run_one(PROMPT, skip_special_tokens=False, **fields).choice
    assert (hidden.text, shown.text) == ("", fim.text * 2)
    for choice in (hidden, shown):
        assert [(info.id, info.special, info.piece) for info in choice.tokens] == [
            (fim.id, True, fim.text.encode())
        ] * 2

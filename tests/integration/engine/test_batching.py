"""Continuous batching changes nothing: an answer among many equals the answer alone."""

from __future__ import annotations

import random
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from jan_serve.ipc.messages import AbortRequest, EngineRequest
from tests.support.engine.worker import Worker, generate, next_id, running_worker
from tests.support.gguf.models import EXACT
from tests.support.sameness import assert_same

pytestmark = pytest.mark.integration

WORDS = "the people said that water was great and every good house has a large door to think about".split()
ROUNDS = 10


def words(seed: int, count: int) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=count))


@pytest.fixture(scope="module")
def batching(exact_llama: Path) -> Generator[Worker]:
    """Fewer sequences at once than a round sends, small batches, and cells for about half of them."""
    with running_worker(
        exact_llama, n_ctx=1024, parallel=12, n_batch=64, n_ubatch=64, cache_sequences=6, **EXACT
    ) as worker:
        yield worker


def mixed(seed: int) -> list[EngineRequest]:
    """32 requests: short and long prompts, common prefixes, several choices, stops, sampling with seeds."""
    random_ = random.Random(seed)
    requests: list[EngineRequest] = []
    for i in range(32):
        prompt = words(i % 5, 30) + " " + words(100 + i, random_.choice([1, 10, 40]))
        fields: dict[str, object] = {"max_tokens": random_.choice([1, 5, 20, 60])}
        if i % 4 == 1:
            fields |= {"temperature": 1.0, "seed": i, "n": 1 + i % 3}
        if i % 4 == 2:
            fields |= {"stop": ("a", "th"), "return_tokens": True}
        if i % 8 == 3:
            fields |= {"repeat_penalty": 1.3, "presence_penalty": 0.5, "logprobs": 2}
        if i % 8 == 7:
            fields |= {"prompt_logprobs": 1, "n": 2}
        requests.append(generate(prompt, **fields))
    return requests


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_an_answer_among_32_mixed_requests_equals_the_answer_alone(batching: Worker, round_: int) -> None:
    prompt = words(77, 12)
    alone = batching.run_one(prompt, max_tokens=80, return_tokens=True)
    others = mixed(round_)
    same = generate(prompt, max_tokens=80, return_tokens=True)
    cancelled = random.Random(round_).sample(others, 8)
    early, late = cancelled[:4], cancelled[4:]
    batching.send(*others[:16], same, *others[16:], *(AbortRequest(request.id) for request in early))
    # Cancel the rest while they wait, prefill or decode: at the first frames.
    for request in late:
        batching.advance()
        batching.send(AbortRequest(request.id))
    kept = [request for request in others if request not in cancelled]
    batching.until(same, *kept)
    found = batching.results[same.id]
    assert found.choice.end.completion_tokens == 80
    for request in kept:
        assert len(batching.results[request.id].texts) == request.n
    assert_same(batching, same, found.choice, alone.choice)


def test_every_answer_among_many_equals_its_answer_alone(batching: Worker) -> None:
    requests = mixed(1)
    together = batching.run(*requests)
    for request, found in zip(requests, together, strict=True):
        alone = batching.run(again(request))[0]
        assert found.choices.keys() == alone.choices.keys()
        for index, choice in found.choices.items():
            assert_same(batching, request, choice, alone.choices[index])


def test_the_prompt_is_scored_before_any_text_where_others_have_it_in_the_cache(llama: Worker) -> None:
    """Choices that find the prompt in the cache are ready at once, and a stream leaves its scoring little room."""
    prompt = words(5, 150)
    llama.run_one(prompt, max_tokens=4)
    stream = generate(words(6, 20), max_tokens=120, ignore_eos=True)
    _, scored = llama.run(stream, generate(prompt, n=3, prompt_logprobs=0, max_tokens=4))
    assert scored.scored is not None
    assert len(scored.texts) == 3


def test_sampled_choices_differ_and_are_numbered_by_seed(llama: Worker) -> None:
    several = llama.run_one("the people", n=4, temperature=1.0, seed=10, max_tokens=30)
    assert len(set(several.texts)) == 4
    for index in range(4):
        request = generate("the people", temperature=1.0, seed=10 + index, max_tokens=30)
        single = llama.run(request)[0]
        assert_same(llama, request, several.choices[index], single.choice)
        assert several.choices[index].end.seed == single.choice.end.seed == 10 + index


@pytest.mark.parametrize("parallel", [4, 2])
@pytest.mark.parametrize("model", ["exact_llama", "exact_recurrent", "exact_hybrid"])
def test_the_prompt_of_several_choices_is_computed_once(
    request: pytest.FixtureRequest, model: str, parallel: int
) -> None:
    """Also where only two of the four run at once, and the others begin when the prompt's cells have moved on."""
    path: Path = request.getfixturevalue(model)
    with running_worker(path, n_ctx=512, parallel=parallel, prompt_lookup="off", **EXACT) as worker:
        several = worker.run_one(words(9, 120), n=4, temperature=1.0, seed=10, max_tokens=5, ignore_eos=True)
        # Of each choice the last token of the prompt, and all tokens of its answer but the last.
        assert worker.stats().computed_tokens_total == several.usage.prompt_tokens - 1 + 4 * 5
        alone = [
            worker.run_one(words(9, 120), temperature=1.0, seed=10 + i, max_tokens=5, ignore_eos=True).text
            for i in range(4)
        ]
    assert several.texts == alone


def test_a_drawn_seed_is_reported_and_gives_the_same_text_again(llama: Worker) -> None:
    first = llama.run_one("the people", temperature=1.0, max_tokens=30)
    seed = first.choice.end.seed
    assert seed is not None
    assert llama.run_one("the people", temperature=1.0, max_tokens=30, seed=seed).text == first.text


def test_greedy_has_no_seed(llama: Worker) -> None:
    assert llama.run_one("the people", seed=3).choice.end.seed is None


@pytest.mark.parametrize(
    "other",
    [
        {"temperature": 1.5, "seed": 5},
        {"repeat_penalty": 2.0, "frequency_penalty": 2.0, "presence_penalty": 2.0},
        {"logit_bias": {40: 100.0}},
        {"stop": ("e",), "min_tokens": 10},
        {"mirostat_mode": 2, "temperature": 1.0, "seed": 5},
        {"ignore_eos": True},
        {"logprobs": 5},
    ],
    ids=lambda fields: "+".join(fields),
)
def test_requests_do_not_influence_each_other(llama: Worker, other: dict[str, object]) -> None:
    """The same prompt beside a request with other settings, greedy and sampled."""
    fields: list[dict[str, object]] = [other, {}, other, {"temperature": 1.0, "seed": 8}]
    requests = [generate("one long day", max_tokens=40, return_tokens=True, **each) for each in fields]
    alone = [llama.run(again(request))[0] for request in requests]
    for request, found, expected in zip(requests, llama.run(*requests), alone, strict=True):
        assert_same(llama, request, found.choice, expected.choice)


def test_more_sequences_than_cells_hold(exact_llama: Path) -> None:
    """Cells run out in the middle of answers: sequences are computed again, with the same text."""
    with running_worker(exact_llama, n_ctx=128, parallel=8, cache_sequences=4, **EXACT) as worker:
        requests = [
            generate(words(i, 8), max_tokens=60, temperature=i % 2, seed=i, logprobs=i % 3) for i in range(12)
        ]
        together = worker.run(*requests)
        stats = worker.stats()
        assert stats.cells_used <= stats.cells_total == 128
        for request, found in zip(requests, together, strict=True):
            alone = worker.run(again(request))[0]
            assert_same(worker, request, found.choice, alone.choice)
            assert found.usage.prompt_tokens == alone.usage.prompt_tokens


def test_preempted_sequences_are_scored_once(exact_llama: Path) -> None:
    with running_worker(exact_llama, n_ctx=128, parallel=8, n_batch=16, **EXACT) as worker:
        requests = [generate(words(i, 20), max_tokens=40, prompt_logprobs=1) for i in range(6)]
        for request, found in zip(requests, worker.run(*requests), strict=True):
            alone = worker.run(again(request))[0]
            assert found.scored is not None and alone.scored is not None
            assert len(found.scored.tokens) == found.usage.prompt_tokens
            assert [info.id for info in found.scored.tokens] == [info.id for info in alone.scored.tokens]
            assert_same(worker, request, found.choice, alone.choice)


def again(request: EngineRequest) -> EngineRequest:
    return msgspec.structs.replace(request, id=next_id())

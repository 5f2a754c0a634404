"""The probabilities of options equal those of llama.cpp, one path of tokens at a time, and those of scored prompts."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from jan_serve.errors import ContextLengthExceeded, InvalidRequest, UnsupportedOperation
from jan_serve.ipc.messages import AbortRequest
from jan_serve.ipc.scoring import OptionQuestion, WeighOptions
from tests.support.engine.worker import Worker, next_id, running_worker
from tests.support.gguf.models import EXACT
from tests.support.gguf.raw_llama import RawLlama, raw_llama

pytestmark = pytest.mark.integration

SHARED = ("<|im_start|>user\npeople live in homes near the water and read " * 12,)
ASKED = "\nwhat is it?<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def worker(exact_llama: Path) -> Generator[Worker]:
    with running_worker(exact_llama, n_ctx=1024, parallel=4, **EXACT) as running:
        yield running


@pytest.fixture(scope="module")
def raw(exact_llama: Path) -> Generator[RawLlama]:
    with raw_llama(exact_llama) as opened:
        yield opened


def spellings(raw: RawLlama, text: bytes) -> Iterator[tuple[int, ...]]:
    """Every way to write a text with the tokens of the model."""
    if not text:
        yield ()
    for end in range(1, len(text) + 1):
        for token in range(raw.model.vocab.n_tokens):
            piece = raw.model.vocab.piece(token, special=False)
            if piece == text[:end] and not raw.model.vocab.is_control(token):
                for rest in spellings(raw, text[end:]):
                    yield (token, *rest)


def log_mass(raw: RawLlama, prompt: Sequence[int], paths: Iterator[tuple[int, ...]]) -> float:
    return float(np.logaddexp.reduce([raw.path_log_probability(prompt, path) for path in paths]))


def prompt_tokens(raw: RawLlama, asked: str = ASKED, shared: Sequence[str] = SHARED) -> list[int]:
    return [token for piece in (*shared, asked) for token in raw.tokens(piece)]


def test_each_option_gets_the_sum_of_all_its_tokenisations(worker: Worker, raw: RawLlama) -> None:
    options = ("yes", "no", "the")
    answer = worker.weigh(OptionQuestion((ASKED,), options), shared=SHARED)
    [weights] = answer.answers
    prompt = prompt_tokens(raw)
    assert weights.is_exact and answer.prompt_tokens == len(prompt)
    for option, found, count in zip(options, weights.log_masses, weights.tokenisations, strict=True):
        paths = list(spellings(raw, option.encode()))
        assert 1 <= count <= len(paths)  # those of a negligible share are not followed
        assert found == pytest.approx(log_mass(raw, prompt, iter(paths)), abs=1e-4)


def test_a_short_question_leaves_room_for_a_longer_one(exact_llama: Path) -> None:
    """llama.cpp ends the process for a batch that is longer than the context was made for."""
    with running_worker(exact_llama, n_ctx=1024, parallel=4, **EXACT) as fresh:
        fresh.weigh(OptionQuestion(("a",), ("yes", "no")))
        answer = fresh.weigh(OptionQuestion((ASKED * 5,), ("yes", "no")))
    assert answer.prompt_tokens > 50


def test_numbers_are_those_of_a_scored_prompt(worker: Worker, raw: RawLlama) -> None:
    options = ("people live", "water", " and more")
    question = OptionQuestion((ASKED,), options)
    [weights] = worker.weigh(question, shared=SHARED, canonical=True).answers
    assert not weights.is_exact and weights.tokenisations == (1, 1, 1)
    prompt = prompt_tokens(raw)
    for option, found in zip(options, weights.log_masses, strict=True):
        path = raw.tokens(option)
        scored = worker.run_one([*prompt, *path], max_tokens=0, prompt_logprobs=0).scored
        assert scored is not None
        values = [info.logprob for info in scored.tokens[len(prompt) :]]
        assert found == pytest.approx(sum(value or 0.0 for value in values), abs=1e-4)


def test_an_option_that_begins_another_one_counts_where_the_other_does_not_follow(
    worker: Worker, raw: RawLlama
) -> None:
    options = ("1", "10", "100", "2")
    [weights] = worker.weigh(OptionQuestion((ASKED,), options), shared=SHARED).answers
    prompt = prompt_tokens(raw)
    one, ten, hundred = ([path] for path in ((raw.tokens(text)) for text in ("1", "10", "100")))
    assert [len(path[0]) for path in (one, ten, hundred)] == [1, 2, 3], "digits are tokens here"
    masses = [math.exp(raw.path_log_probability(prompt, path[0])) for path in (one, ten, hundred)]
    wanted = [masses[0] - masses[1], masses[1] - masses[2], masses[2]]
    found = [math.exp(value) for value in weights.log_masses]
    assert found[:3] == pytest.approx(wanted, abs=1e-6)
    assert sum(found) <= 1.0


def test_many_questions_read_the_shared_prompt_once(worker: Worker, raw: RawLlama) -> None:
    asked = [f"\nis it number {number}?{' again' * (number % 5)}" + ASKED for number in range(40)]
    options = ("yes", "no")
    questions = [OptionQuestion((text,), options) for text in asked]
    answer = worker.weigh(*questions, shared=SHARED)
    prompts = [prompt_tokens(raw, text) for text in asked]
    shared = len(prompt_tokens(raw, ""))
    assert answer.prompt_tokens <= shared + sum(len(prompt) - shared for prompt in prompts)
    for number in (0, 17, 39):
        for option, found in zip(options, answer.answers[number].log_masses, strict=True):
            wanted = log_mass(raw, prompts[number], spellings(raw, option.encode()))
            assert found == pytest.approx(wanted, abs=1e-4)
    again = worker.weigh(*questions[:3], shared=SHARED)
    assert again.cached_tokens >= shared - 1
    for one, other in zip(again.answers, answer.answers, strict=False):
        assert one.log_masses == pytest.approx(other.log_masses, abs=1e-4)
    salted = worker.weigh(questions[0], shared=SHARED, cache_salt="other")
    assert salted.cached_tokens == 0


@pytest.mark.parametrize("model", ["exact_recurrent", "exact_hybrid", "exact_sliding"])
def test_other_memories_branch_too(request: pytest.FixtureRequest, model: str) -> None:
    path: Path = request.getfixturevalue(model)
    questions = [OptionQuestion((f"\n{number}" + ASKED,), ("yes", "no")) for number in range(3)]
    with running_worker(path, n_ctx=512, **EXACT) as worker, raw_llama(path) as raw:
        for _ in range(2):
            answer = worker.weigh(*questions, shared=("people live " * 20,))
            for number, weights in enumerate(answer.answers):
                prompt = prompt_tokens(raw, f"\n{number}" + ASKED, ("people live " * 20,))
                wanted = [log_mass(raw, prompt, spellings(raw, text)) for text in (b"yes", b"no")]
                assert weights.log_masses == pytest.approx(wanted, abs=1e-4)


def test_long_options_are_counted_as_the_vocabulary_writes_them(worker: Worker, raw: RawLlama) -> None:
    """Or all their tokenisations, where those are few enough."""
    options = tuple(
        f"the animal found the {what} where people live and read the letter" for what in ("air", "oil")
    )
    [weights] = worker.weigh(OptionQuestion((ASKED,), options), shared=SHARED).answers
    assert not weights.is_exact
    wanted = [raw.path_log_probability(prompt_tokens(raw), raw.tokens(text)) for text in options]
    assert weights.log_masses == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize(
    ("question", "error"),
    [
        (OptionQuestion((ASKED,), ("x" * 600, "no")), InvalidRequest),
        (OptionQuestion(("people " * 2000,), ("yes", "no")), ContextLengthExceeded),
        (OptionQuestion(((100_000,),), ("yes", "no")), InvalidRequest),
    ],
)
def test_what_cannot_be_weighed_is_refused(
    worker: Worker, question: OptionQuestion, error: type[InvalidRequest]
) -> None:
    with pytest.raises(error):
        worker.weigh(OptionQuestion((ASKED,), ("yes", "no")), question, shared=SHARED)


def test_a_model_that_does_not_write_is_refused(tiny_bert: Path) -> None:
    with running_worker(tiny_bert) as worker, pytest.raises(UnsupportedOperation):
        worker.weigh(OptionQuestion((ASKED,), ("yes", "no")))


def test_a_request_that_is_given_up_leaves_the_rest_in_order(worker: Worker) -> None:
    question = OptionQuestion((ASKED,), ("yes", "no"))
    wanted = worker.weigh(question, shared=SHARED).answers[0].log_masses
    for number in range(5):
        given_up = WeighOptions(
            id=next_id(), shared=(f"{number}", *SHARED), questions=(question,) * 20, cache_salt=""
        )
        worker.send(given_up, AbortRequest(id=given_up.id))
        again = worker.weigh(question, shared=SHARED)
        assert again.answers[0].log_masses == pytest.approx(wanted, abs=1e-4)

"""Answers that another worker began: from each token on, they are what they are undisturbed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from jan_serve.core.constraint import CompiledGrammar, Guide, ThoughtGuide
from jan_serve.core.events import TokenInfo
from jan_serve.core.request import RepetitionDetection, Watermark
from jan_serve.errors import EngineFailure, InvalidRequest
from jan_serve.ipc.messages import EngineEvent, EngineRequest, SequenceFinished, WrittenChoice, WrittenParts
from jan_serve.supervisor.models.written_answer import WrittenAnswer
from tests.support.engine.worker import Choice, Result, Worker, generate, next_id, running_worker
from tests.support.gguf.models import EXACT

pytestmark = pytest.mark.integration

PROMPT = "one long day"
GRAMMAR = CompiledGrammar(lark='start: "number " /[0-9]{3,9}/ " and the word " /[a-z ]{5,30}/ "."\n')
THOUGHT = ThoughtGuide(
    opens=("<t>",), closes=("</t>",), ends=(), is_open=True, anywhere=False, may_open=True, budget=7
)
WARM = {"temperature": 0.9, "seed": 5}

THRICE: Final = RepetitionDetection(max_pattern_size=8, min_count=3)
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "drawn": {**WARM, "top_k": 30, "top_p": 0.9},
    "penalties": {**WARM, "repeat_penalty": 1.4, "frequency_penalty": 0.5, "repeat_last_n": 8},
    "warped": {**WARM, "pipeline": "warped", "repeat_penalty": 1.3, "top_p": 0.95},
    "watermark": {**WARM, "watermark": Watermark()},
    "bias": {**WARM, "logit_bias": {101: 3.0}, "min_tokens": 20},
    "choices": {**WARM, "n": 3},
    "choices that end apart": {**WARM, "n": 4, "stop": ("e",), "logprobs": 0},
    "log-probabilities": {**WARM, "logprobs": 2},
    "tokens": {**WARM, "return_tokens": True, "n": 2},
    "prompt": {**WARM, "prompt_logprobs": 1},
    "grammar": {**WARM, "guide": Guide(grammar=GRAMMAR), "max_tokens": 60},
    "grammar and tokens": {**WARM, "guide": Guide(grammar=GRAMMAR), "max_tokens": 60, "return_tokens": True},
    "a thought": {**WARM, "guide": Guide(thought=THOUGHT)},
    "a thought and a grammar": {**WARM, "guide": Guide(thought=THOUGHT, grammar=GRAMMAR), "max_tokens": 60},
    "special tokens": {**WARM, "skip_special_tokens": False, "logit_bias": {0: 5.0, 1: 5.0}},
    "a limit": {"max_tokens": 3},
    "a loop": {"logit_bias": {101: 30.0}, "repetition_detection": THRICE},
    "a loop it is led out of": {
        "logit_bias": {101: 30.0},
        "repetition_detection": msgspec.structs.replace(THRICE, escapes=2),
    },
}


def frames(worker: Worker, request: EngineRequest) -> list[int]:
    """Send the request, and read its answer. Numbers of its events at which a worker may end: those of whole frames."""
    worker.send(request)
    counts: list[int] = []
    while not worker.results[request.id].is_over:
        worker.advance()
        counts.append(len(worker.results[request.id].events))
    return counts[:-1]


def begun(request: EngineRequest, events: Sequence[EngineEvent]) -> tuple[Result, EngineRequest]:
    """What the client has of these events, and what is left of the request."""
    early, written = Result(), WrittenAnswer(request)
    for event in events:
        early.add(event)
        written.add(event)
    return early, msgspec.structs.replace(written.rest(), id=next_id())


def test_the_loops_of_these_tests_are_some(llama: Worker) -> None:
    ends = [
        llama.run_one(PROMPT, max_tokens=40, **KINDS[kind]).choice.end for kind in KINDS if "loop" in kind
    ]
    assert [end.repetition for end in ends] == [True, True]
    assert ends[0].completion_tokens < ends[1].completion_tokens


def check(worker: Worker, request: EngineRequest, other: Worker | None = None) -> None:
    """Wherever its worker ends, the answer goes on to the same end. other: goes on."""
    counts = frames(worker, request)
    whole = worker.results[request.id]
    assert len(counts) > 1 and whole.error is None
    answers = [begun(request, whole.events[:count]) for count in counts]
    results = (other or worker).run(*(rest for _, rest in answers))
    for (early, rest), late in zip(answers, results, strict=True):
        assert late.usage.prompt_tokens == whole.usage.prompt_tokens
        assert late.usage.completion_tokens == whole.usage.completion_tokens
        for index, choice in whole.choices.items():
            first, second = early.choices.get(index, Choice()), late.choices.get(index)
            if first.finished is not None:
                assert second is None
                continue
            assert second is not None
            assert first.text + second.text == choice.text, rest.written
            tokens = first.tokens + second.tokens
            assert [info.id for info in tokens] == choice.ids
            assert _scores(tokens) == pytest.approx(_scores(choice.tokens), abs=1e-4)
            assert _end(second) == _end(choice)
            means = [each.end.mean_logprob or 0.0 for each in (second, choice)]
            assert means[0] == pytest.approx(means[1], abs=1e-4)


def _scores(tokens: Sequence[TokenInfo]) -> list[float]:
    return [0.0 if info.logprob is None else info.logprob for info in tokens]


def _end(choice: Choice) -> SequenceFinished:
    return msgspec.structs.replace(choice.end, id=0, mean_logprob=None, end_token=None)


@pytest.mark.parametrize("kind", KINDS)
def test_from_each_place_the_rest_is_the_same(llama: Worker, kind: str) -> None:
    check(llama, generate(PROMPT, **{"max_tokens": 40, **KINDS[kind]}))


@pytest.mark.parametrize("length", [1, 2, 3, 5])
@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("more", [{}, {"include_stop": True}, {"stop_at_token_end": True}, {"min_tokens": 9}])
def test_stop_strings_that_have_begun(llama: Worker, length: int, tokens: bool, more: dict[str, Any]) -> None:
    text = llama.run_one(PROMPT, max_tokens=40, **WARM).text
    # One that comes, and several that begin as the text goes on and then differ.
    stops = (text[30 : 30 + length], *(text[at : at + length] + "\x01" for at in range(0, 30, 3)))
    after_min = {"stop_after_min": True} if "min_tokens" in more else {}
    check(
        llama, generate(PROMPT, max_tokens=40, stop=stops, return_tokens=tokens, **WARM, **more, **after_min)
    )


def test_characters_of_several_tokens(llama: Worker) -> None:
    lark = 'start: "é漢🙂ß" /[éü漢🙂]{4,12}/ "."\n'
    for tokens in (False, True):
        grammar = CompiledGrammar(lark=lark)
        check(
            llama, generate(PROMPT, max_tokens=60, guide=Guide(grammar=grammar), return_tokens=tokens, **WARM)
        )


def test_what_cannot_be_the_same_goes_on(llama: Worker) -> None:
    """Mirostat's control value begins anew; an answer that has no ids is sampled again behind what was sent."""
    request = generate(PROMPT, max_tokens=20, mirostat_mode=2, **WARM)
    [whole] = llama.run(request)
    early, rest = begun(request, whole.events[:8])
    [late] = llama.run(rest)
    assert late.usage.completion_tokens == whole.usage.completion_tokens
    request = generate(PROMPT, max_tokens=20, **WARM)
    [whole] = llama.run(request)
    early, rest = begun(request, whole.events[:8])
    assert rest.written is not None
    bare = msgspec.structs.replace(rest.written.choices[0], tokens=(), num_tokens=0, draws=0)
    [late] = llama.run(msgspec.structs.replace(rest, written=WrittenParts(choices=(bare,))))
    assert early.text + late.text == whole.text


@pytest.mark.parametrize("choices", [(), (WrittenChoice(), WrittenChoice()), (WrittenChoice(finished=True),)])
def test_parts_that_fit_no_request(llama: Worker, choices: tuple[WrittenChoice, ...]) -> None:
    [result] = llama.run(generate(PROMPT, written=WrittenParts(choices=choices)))
    assert isinstance(result.error, InvalidRequest)


def test_an_answer_longer_than_the_next_context(exact_llama: Path, llama: Worker) -> None:
    request = generate(PROMPT, max_tokens=200, ignore_eos=True)
    [whole] = llama.run(request)
    _, rest = begun(request, whole.events[:150])
    with running_worker(exact_llama, n_ctx=128, parallel=1, **EXACT) as worker:
        [result] = worker.run(rest)
    assert isinstance(result.error, EngineFailure)


def test_the_time_before_counts(llama: Worker) -> None:
    request = generate(PROMPT, max_tokens=8)
    [whole] = llama.run(request)
    _, rest = begun(request, whole.events[:4])
    assert rest.written is not None
    for timed in (
        msgspec.structs.replace(rest.written, waited_s=20.0, decoded_s=300.0),
        WrittenParts(choices=rest.written.choices, waited_s=20.0),
    ):
        [result] = llama.run(msgspec.structs.replace(rest, id=next_id(), written=timed))
        times = result.usage.timings
        if timed.decoded_s is None:
            assert 20 <= times.queue_s < 200
        else:
            assert 20 <= times.prefill_s + times.queue_s < 200 and 300 <= times.decode_s < 400


@pytest.mark.parametrize("model", ["exact_hybrid", "exact_recurrent", "exact_sliding"])
def test_other_memories(request: pytest.FixtureRequest, model: str) -> None:
    path: Path = request.getfixturevalue(model)
    with running_worker(path, n_ctx=2048, parallel=8, **EXACT) as worker:
        for kind in ("drawn", "choices"):
            check(worker, generate(PROMPT, max_tokens=20, **KINDS[kind]))


def test_another_worker_goes_on(exact_llama: Path, llama: Worker) -> None:
    with running_worker(exact_llama, n_ctx=512, parallel=2, **EXACT) as worker:
        check(llama, generate(PROMPT, max_tokens=40, **WARM), worker)

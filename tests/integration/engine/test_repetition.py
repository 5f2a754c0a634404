"""Answers that really loop end there, alone and beside others, or are led out of the loop."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from jan_serve.core.request import LOOPS, RepetitionDetection
from tests.support.engine.worker import Worker, generate, running_worker

pytestmark = pytest.mark.integration

BUILTIN = Path(__file__).resolve().parents[3] / "models" / "builtin" / "jan-tiny.gguf"
PROMPTS = ("water was great", "1, 2, 3, 4")
"""A greedy answer to them has one word four times."""
LENGTH = 200
FOUR = RepetitionDetection(max_pattern_size=64, min_count=4)
LED_OUT = msgspec.structs.replace(FOUR, escapes=9)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_loop_ends_the_answer_and_nothing_else_changes(llama: Worker, prompt: str) -> None:
    plain = llama.run_one(prompt, max_tokens=LENGTH, ignore_eos=True).choice
    cut = llama.run_one(prompt, max_tokens=LENGTH, ignore_eos=True, repetition_detection=FOUR).choice
    assert (cut.end.reason, cut.end.repetition, plain.end.repetition) == ("length", True, False)
    assert cut.end.completion_tokens < LENGTH
    assert plain.text.startswith(cut.text)


def loops(ids: list[int], wanted: RepetitionDetection) -> bool:
    """Whether they end with a pattern as often as is wanted, told in the slow way."""

    def repeats(size: int) -> bool:
        span = size * max(wanted.min_count, -(-wanted.min_tokens // size))
        tail = ids[-span:]
        return len(tail) == span and tail[size:] == tail[:-size]

    return any(map(repeats, range(1, wanted.max_pattern_size + 1)))


def test_a_loop_ends_at_the_token_that_the_setting_says() -> None:
    """The built-in model writes one letter for ever."""
    wanted = LOOPS["end"]
    assert wanted is not None
    with running_worker(BUILTIN, n_ctx=2_304, parallel=1) as worker:
        cut = worker.run_one(
            PROMPTS[0], max_tokens=2_200, ignore_eos=True, return_tokens=True, repetition_detection=wanted
        ).choice
    assert (cut.end.reason, cut.end.repetition) == ("length", True)
    assert wanted.min_tokens <= cut.end.completion_tokens < 2_200
    assert loops(cut.ids, wanted) and not loops(cut.ids[:-1], wanted)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_an_answer_that_is_led_out_of_a_loop_keeps_what_was_sent(llama: Worker, prompt: str) -> None:
    cut = llama.run_one(prompt, max_tokens=LENGTH, ignore_eos=True, repetition_detection=FOUR).choice
    led_out = llama.run_one(prompt, max_tokens=LENGTH, ignore_eos=True, repetition_detection=LED_OUT).choice
    assert led_out.text.startswith(cut.text)
    assert led_out.end.completion_tokens == LENGTH
    assert not led_out.end.repetition
    again = llama.run_one(prompt, max_tokens=LENGTH, ignore_eos=True, repetition_detection=LED_OUT).choice
    assert again.text == led_out.text


def test_the_others_of_a_batch_are_not_touched(llama: Worker) -> None:
    alone = [llama.run_one(prompt, max_tokens=LENGTH, ignore_eos=True) for prompt in PROMPTS]
    cut, other = llama.run(
        generate(PROMPTS[0], max_tokens=LENGTH, ignore_eos=True, repetition_detection=FOUR),
        generate(PROMPTS[1], max_tokens=LENGTH, ignore_eos=True),
    )
    assert cut.choice.end.repetition
    assert other.choice.text == alone[1].choice.text
    assert alone[0].choice.text.startswith(cut.choice.text)

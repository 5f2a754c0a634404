"""Answers that really loop end there, alone and beside others, or are led out of the loop."""

from __future__ import annotations

import msgspec
import pytest

from jan_serve.core.sampling import RepetitionDetection
from tests.support.worker import Worker, generate

pytestmark = pytest.mark.integration

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

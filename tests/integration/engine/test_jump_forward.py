"""Forced text of a grammar is not sampled, and equals the sampled text."""

from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.core.constraint import CompiledGrammar
from tests.support.models import EXACT
from tests.support.worker import running_worker

pytestmark = pytest.mark.integration

GRAMMAR = CompiledGrammar(
    gbnf='root ::= "{\\"the long key\\": " [0-9]{2} "}"', lark='start: "{\\"the long key\\": " /[0-9]{2}/ "}"'
)


def test_the_switch_changes_the_work_and_not_the_text(exact_llama: Path) -> None:
    texts: list[str] = []
    forced: list[int] = []
    steps: list[int] = []
    for jump_forward in (True, False):
        with running_worker(exact_llama, n_ctx=512, jump_forward=jump_forward, **EXACT) as worker:
            texts.append(worker.run_one("hello", max_tokens=40, grammar=GRAMMAR).text)
            stats = worker.stats()
            forced.append(stats.forced_tokens_total)
            steps.append(stats.steps_total)
    assert texts[0] == texts[1]
    assert forced[0] > 5 and forced[1] == 0
    assert steps[0] < steps[1]


def test_what_comes_in_one_step_comes_in_one_piece_unless_its_tokens_are_asked_for(exact_llama: Path) -> None:
    with running_worker(exact_llama, n_ctx=512, **EXACT) as worker:
        plain, tokens = (
            worker.run_one("hello", max_tokens=40, grammar=GRAMMAR, return_tokens=wanted)
            for wanted in (False, True)
        )
    assert plain.text == tokens.text
    generated = tokens.usage.completion_tokens
    assert len(plain.choice.deltas) < generated - 5
    assert len(tokens.choice.deltas) >= generated - 1

"""What a token of a prompt costs, and whether steps of both kinds save time."""

from __future__ import annotations

import pytest

from jan_serve.engine.scheduling.step_costs import PART, StepCosts


def test_costs_are_zero_before_the_first_measurement() -> None:
    costs = StepCosts()
    assert (costs.prefill_token_s, costs.decode_s(1)) == (0.0, 0.0)
    assert costs.decode_curve() is None
    assert not costs.mixing_pays(1, 100)


@pytest.mark.parametrize(("second_s", "then_s"), [(0.01, 0.01), (0.09, 0.06)])
def test_the_first_prompt_reads_the_weights_from_the_disk(second_s: float, then_s: float) -> None:
    costs = StepCosts()
    costs.observe(0, 100, 100 * 0.05)
    costs.observe(0, 100, 100 * second_s)
    assert costs.prefill_token_s == pytest.approx(then_s)
    costs.observe(0, 100, 100 * then_s / 2)
    assert costs.prefill_token_s == pytest.approx(then_s * 0.875), "as slowly as ever from then on"


def test_one_slow_step_changes_a_cost_by_a_quarter_at_most() -> None:
    costs = StepCosts()
    for _ in range(3):
        costs.observe(0, 100, 1.0)
    costs.observe(0, 100, 100.0)
    assert costs.prefill_token_s == pytest.approx(0.0125)


def test_a_token_deep_in_a_prompt_is_learnt_within_a_few_steps() -> None:
    """Attention reads all tokens before it."""
    costs = StepCosts()
    for step in range(100):
        costs.observe(0, 64, 64 * (0.008 + 0.000001 * 64 * step))
    assert costs.prefill_token_s == pytest.approx(0.0143, rel=0.05)


def test_a_prefill_of_a_few_tokens_says_nothing() -> None:
    costs = StepCosts()
    costs.observe(0, PART - 1, 1.0)
    assert costs.prefill_token_s == 0.0


@pytest.mark.parametrize(("share", "pays"), [(0.85, True), (0.95, False), (1.2, False)])
def test_mixed_steps_pay_if_they_save_a_tenth(share: float, pays: bool) -> None:
    costs = StepCosts()
    for _ in range(2):
        costs.observe(0, 100, 1.0)
        costs.observe(1, 0, 0.5)
    assert costs.mixing_pays(1, 100), "it is tried"
    costs.observe(1, 100, share * 1.5)
    assert costs.mixing_pays(1, 100) == pays
    for _ in range(256):
        assert costs.mixing_pays(1, 100) == pays
        costs.observe(0, 100, 1.0)
    assert costs.mixing_pays(1, 100), "and tried again"

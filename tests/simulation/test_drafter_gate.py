"""Whether drafts pay is judged from times that other programs disturb. The clock jitters; the costs do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from jan_serve.engine.drafting.draft_model import DraftModel
from jan_serve.engine.drafting.drafter import Drafter
from jan_serve.engine.llama.context import DECODE_OK, Floats
from jan_serve.engine.scheduling.step_costs import StepCosts
from jan_serve.engine.tokens import TokenBuffer
from tests.support.drawn_grid import some
from tests.unit.engine.fake_context import FakeContext, sequence_of

Seconds = Callable[[int], float]
Noise = Callable[[int, int], float]
"""What multiplies the measured time of a step, by the number of the step and its rows."""

PROMPT = np.arange(1, 61, dtype=np.int32)
SEEDS = 10
"""Answers of each kind."""


def cheap(rows: int) -> float:
    return 0.020 + 0.002 * (rows - 1)


def tiled(rows: int) -> float:
    return 0.020 + 0.012 * ((rows - 1) // 4)


def proportional(rows: int) -> float:
    return 0.024 * rows


class Graphs:
    """A device that records the third step in a row of one size and replays it from then on. As an H200 did."""

    def __init__(self) -> None:
        self._rows = self._since = 0

    def __call__(self, rows: int) -> float:
        self._since = self._since + 1 if rows == self._rows else 0
        self._rows = rows
        return 0.0034 + 0.0002 * rows if self._since < 2 else 0.0012 + 0.00002 * (rows - 1)


GRAPH_TOKEN_S = 0.0012
GRAPH_FIRST_S = 2 * 0.0024
"""What the first two steps take more."""


def quiet(_step: int, _rows: int) -> float:
    return 1.0


def jitter(seed: int) -> Noise:
    rng = np.random.default_rng(seed)
    return lambda _step, _rows: float(rng.lognormal(0.0, 0.2))


def spikes(seed: int) -> Noise:
    rng = np.random.default_rng(seed)
    return lambda _step, _rows: 4.0 if rng.random() < 0.15 else 1.0


def other_programs(seed: int) -> Noise:
    """Everything is three times slower for 40 steps of each 150."""
    return lambda step, _rows: 3.0 if (step + 37 * seed) % 150 < 40 else 1.0


NOISES: dict[str, Callable[[int], Noise]] = {
    "quiet": lambda _seed: quiet,
    "jitter": jitter,
    "spikes": spikes,
    "other programs": other_programs,
}


def repeating(_seed: int) -> Iterator[int]:
    while True:
        yield from PROMPT.tolist()


def free(seed: int) -> Iterator[int]:
    """Few different tokens: runs of three occur again and again, and what follows is random."""
    rng = np.random.default_rng(seed)
    while True:
        yield int(rng.integers(1, 7))


def partly(seed: int) -> Iterator[int]:
    """Repeats the prompt, with a random token after some ten others."""
    rng = np.random.default_rng(seed)
    for token in repeating(seed):
        yield token
        if rng.random() < 0.1:
            yield int(rng.integers(100, 10_000))


TEXTS = {"repeating": repeating, "free": free, "partly": partly}


class Stream:
    """One stream of a simulated engine, whose text is given. drafted_at: numbers of tokens at which a draft was. rows:
    of each step."""

    def __init__(
        self, text: Iterator[int], seconds_of: Seconds, noise: Noise, model: DraftModel | None = None
    ) -> None:
        self.costs = StepCosts()
        self.costs.observe(0, 60, 60 * 0.6 * seconds_of(4) / 4)
        self.drafter = Drafter(self.costs, "auto", model, longest=10_000)
        self.sequence = sequence_of(PROMPT)
        self.sequence.tokens = TokenBuffer([*PROMPT.tolist()])
        self.sequence.max_new = 100_000
        self.noise = noise
        self.seconds = 0.0
        self.drafted_at: list[int] = []
        self.rows: list[int] = []
        self._text = text
        self._seconds_of = seconds_of

    def write(self, num_tokens: int) -> float:
        """Write so many tokens. Returns the true seconds."""
        before, end = self.seconds, self.sequence.num_generated + num_tokens
        while self.sequence.num_generated < end:
            self._step()
        return self.seconds - before

    def ratio(self, token_s: float, first_s: float = 0.0) -> float:
        """True seconds of 500 tokens, and of what the last draft wrote beyond, to those without drafts."""
        before = self.sequence.num_generated
        return self.write(500) / (first_s + token_s * (self.sequence.num_generated - before))

    def _step(self) -> None:
        draft = self.drafter.drafts([self.sequence], 1, 100)[0]
        rows = 1 + (0 if draft is None else len(draft.tokens))
        seconds = self._seconds_of(rows)
        self.seconds += seconds
        self.rows.append(rows)
        token = self._write_one()
        if draft is not None:
            self.drafted_at.append(self.sequence.num_generated)
            accepted = 0
            while accepted < len(draft.tokens) and draft.tokens[accepted] == token:
                token = self._write_one()
                accepted += 1
            self.drafter.observe_draft(self.sequence, draft, accepted)
        self.costs.observe(rows, 0, seconds * self.noise(len(self.rows), rows))

    def _write_one(self) -> int:
        token = next(self._text)
        self.sequence.tokens.append(token)
        self.sequence.num_generated += 1
        return token


MOST, USUAL = 1.10, 1.03
"""Times as long as without drafts: what none of these answers of 500 tokens takes, and what few take more than."""


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("seconds_of", [cheap, tiled, proportional])
def test_drafts_cost_at_most_three_percent_of_500_tokens(seconds_of: Seconds, text: str, noise: str) -> None:
    """Single answers take more where drafts never pay, the text repeats in part and other programs run."""
    ratios: list[float] = []
    for seed in range(SEEDS):
        stream = Stream(TEXTS[text](seed), seconds_of, NOISES[noise](seed))
        ratios.append(stream.ratio(seconds_of(1)))
    is_hard = seconds_of is proportional and text == "partly" and noise != "quiet"
    assert max(ratios) <= (MOST if is_hard else USUAL), sorted(round(r, 3) for r in ratios)
    assert np.mean(ratios) <= 1.02


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("text", "most"), [("free", 1.03), ("partly", 1.03), ("repeating", 0.42)])
def test_what_a_draft_does_to_the_steps_after_it_counts(text: str, most: float, noise: str) -> None:
    """Each of the first drafts, from which this is learnt, takes a hundredth of the time of 500 tokens."""
    ratios: list[float] = []
    for seed in range(SEEDS):
        stream = Stream(TEXTS[text](seed), Graphs(), NOISES[noise](seed))
        ratios.append(stream.ratio(GRAPH_TOKEN_S, GRAPH_FIRST_S))
    assert max(ratios) <= most, sorted(round(r, 3) for r in ratios)


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("device", "token_s", "first_s"),
    [(Graphs, GRAPH_TOKEN_S, GRAPH_FIRST_S), (lambda: proportional, 0.024, 0.0)],
    ids=["graphs", "proportional"],
)
def test_few_answers_cost_more_whatever_disturbs_the_clock(
    device: Callable[[], Seconds], token_s: float, first_s: float
) -> None:
    """Where drafts pay least. Some trials are disturbed so much that they say the opposite of the truth."""
    ratios: list[float] = []
    for noise in ("jitter", "spikes", "other programs"):
        for seed in some(range(100), 30):
            ratios.append(Stream(partly(seed), device(), NOISES[noise](seed)).ratio(token_s, first_s))
    assert np.quantile(ratios, 0.95) <= USUAL
    assert max(ratios) <= MOST


@pytest.mark.parametrize("seed", [92, 189, 195])
def test_a_trial_has_no_size_beyond_what_is_known(seed: int) -> None:
    """Two slow steps after a draft look like a device that captures steps, where a trial must promise many tokens."""
    stream = Stream(partly(seed), proportional, spikes(seed))
    stream.write(500)
    largest = 4
    for rows in stream.rows:
        assert rows <= 2 * largest
        largest = max(largest, rows)


def test_drafts_of_text_that_repeats_for_long_grow_to_the_longest() -> None:
    stream = Stream(repeating(0), Graphs(), quiet)
    stream.write(500)
    assert stream.write(500) <= 0.05 * 500 * 0.0012
    assert stream.rows[-1] == 33


class SlowContext(FakeContext):
    """The context of a draft model whose pass takes a third of a step. is_sure: whether it finds any token probable."""

    n_vocab = 10_000

    def __init__(self, *, is_sure: bool) -> None:
        super().__init__()
        self.now = 0.0
        self._logits = np.zeros(self.n_vocab, np.float32)
        self._logits[9_999] = 20.0 if is_sure else 0.0

    def decode(self, batch: Any, meanwhile: Callable[[], None] | None = None) -> int:
        self.now += 0.008
        return DECODE_OK

    def logits(self, index: int) -> Floats:
        return self._logits


@pytest.mark.parametrize("is_sure", [True, False])
def test_a_draft_model_that_knows_nothing_costs_at_most_three_percent(is_sure: bool) -> None:
    context: Any = SlowContext(is_sure=is_sure)
    model = DraftModel(context, 1, context.n_vocab, clock=lambda: context.now)
    stream = Stream(free(1), cheap, quiet, model)
    seconds = stream.write(500) + context.now
    assert seconds <= 1.03 * 500 * cheap(1)
    before, stream.seconds, context.now = len(stream.drafted_at), 0.0, 0.0
    assert stream.write(5_000) + context.now <= 1.01 * 5_000 * cheap(1)
    assert len(stream.drafted_at) > before or context.now > 0.0, "it is tried again"


@pytest.mark.parametrize("noise", NOISES)
def test_drafts_of_repeating_text_stay_in_use_whatever_the_clock_says(noise: str) -> None:
    for seed in range(5):
        stream = Stream(repeating(seed), cheap, NOISES[noise](seed))
        assert stream.write(1000) < 0.2 * 1000 * cheap(1)


@pytest.mark.parametrize("steps", [1, 5, 20])
def test_drafts_come_back_within_50_tokens_after_a_wrong_judgement(steps: int) -> None:
    """A program that runs beside every draft makes them look ten times slower, until it ends."""
    stream = Stream(repeating(0), cheap, quiet)
    stream.write(200)
    assert stream.drafted_at

    def beside_drafts(_step: int, rows: int) -> float:
        return 10.0 if rows > 1 else 1.0

    stream.noise = beside_drafts
    before = len(stream.drafted_at)
    while len(stream.drafted_at) < before + steps and stream.sequence.num_generated < 5_000:
        stream.write(1)
        if stream.sequence.num_generated - stream.drafted_at[-1] > 20:
            break  # judged useless
    stream.noise = quiet
    judged = stream.sequence.num_generated
    stream.write(60)
    assert next(at for at in stream.drafted_at if at > judged) - judged <= 50
    assert len([at for at in stream.drafted_at if at > judged]) >= 2, "not a trial only"


def test_a_text_that_begins_to_repeat_is_drafted_again() -> None:
    """Guesses that are not drafted are compared with what is written."""

    def text() -> Iterator[int]:
        random = free(1)
        for _ in range(400):
            yield next(random)
        yield from repeating(0)

    stream = Stream(text(), cheap, quiet)
    stream.write(400)
    stream.write(150)
    assert any(at > 400 for at in stream.drafted_at)


def test_drafts_that_pay_nowhere_are_tried_ever_less_often() -> None:
    stream = Stream(repeating(0), proportional, quiet)
    stream.write(3000)
    tried = [at for at in stream.drafted_at if at > 1000]
    assert len(tried) <= 10

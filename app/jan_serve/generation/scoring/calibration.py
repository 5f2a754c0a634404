"""A temperature fitted on labelled examples (Guo et al. 2017), so that 0.8 means right in four cases of five."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from jan_serve.core.calibration import Calibration
from jan_serve.errors import InvalidRequest
from jan_serve.generation.scoring.decisions import Decided, Decision, Question, decide
from jan_serve.generation.service import GenerationService

MIN_EXAMPLES: Final = 10
MIN_TEMPERATURE: Final = 0.1
MAX_TEMPERATURE: Final = 10.0
_STEPS: Final = 40
"""Halvings of the interval: its end is below 1e-10."""


class LabelledQuestion(NamedTuple):
    """answer: the index of the right option."""

    state: str
    question: Question
    answer: int


class CalibratedModel(NamedTuple):
    decided: Decided
    calibration: Calibration


async def calibrate(
    service: GenerationService,
    model: str | None,
    examples: Sequence[LabelledQuestion],
    *,
    instructions: str = "",
    canonical: bool = False,
) -> CalibratedModel:
    """Weigh the options of all examples, text by text, and fit. decided: the last text's. See `check_enough`.

    Raises as GenerationService.open and `decide`, and InvalidRequest for an answer that is impossible.
    """
    texts: dict[str, list[int]] = {}
    for index, example in enumerate(examples):
        texts.setdefault(example.state, []).append(index)
    found: dict[int, Decision] = {}
    decided: Decided | None = None
    for state, indices in texts.items():
        questions = [examples[index].question for index in indices]
        work = partial(
            decide, state=state, questions=questions, instructions=instructions, canonical=canonical
        )
        decided = await service.with_model(model, work)
        found |= zip(indices, decided.decisions, strict=True)
    assert decided is not None
    weighed = [(found[index].log_masses, example.answer) for index, example in enumerate(examples)]
    return CalibratedModel(decided, await asyncio.to_thread(fitted, weighed))


def check_enough(count: int) -> None:
    """Raises InvalidRequest."""
    if count < MIN_EXAMPLES:
        raise InvalidRequest(
            f"examples: {count} are too few to fit a temperature, which needs {MIN_EXAMPLES}",
            param="examples",
        )


def fitted(examples: Sequence[tuple[Sequence[float], int]]) -> Calibration:
    """The temperature with the smallest loss, from the log masses of the options and the index of the answer.

    The loss is convex in 1/temperature, so its slope has one zero. Blocks. Raises InvalidRequest for an answer that
    the model cannot give.
    """
    for index, (masses, answer) in enumerate(examples):
        if masses[answer] == -math.inf:
            raise InvalidRequest(
                f"examples: the model never gives the answer of item {index}", param="examples"
            )
    low, high = 1 / MAX_TEMPERATURE, 1 / MIN_TEMPERATURE
    at_bound = False
    if _slope(examples, 1.0) == 0.0:
        low = high = 1.0
    elif _slope(examples, high) <= 0.0:
        low, at_bound = high, True
    elif _slope(examples, low) >= 0.0:
        high, at_bound = low, True
    else:
        for _ in range(_STEPS):
            middle = (low + high) / 2
            if _slope(examples, middle) < 0.0:
                low = middle
            else:
                high = middle
    inverse = (low + high) / 2
    return Calibration(
        temperature=1 / inverse,
        examples=len(examples),
        accuracy=sum(masses[answer] == max(masses) for masses, answer in examples) / len(examples),
        loss_before=_loss(examples, 1.0),
        loss_after=_loss(examples, inverse),
        at_bound=at_bound,
    )


def _slope(examples: Sequence[tuple[Sequence[float], int]], inverse: float) -> float:
    """d loss / d(1/temperature), summed: the expected log mass less the answer's."""
    total: list[float] = []
    for masses, answer in examples:
        weights = _weights(masses, inverse)
        expected = math.fsum(w * mass for w, mass in zip(weights, masses, strict=True) if w) / math.fsum(
            weights
        )
        total.append(expected - masses[answer])
    return math.fsum(total)


def _loss(examples: Sequence[tuple[Sequence[float], int]], inverse: float) -> float:
    losses = (
        math.log(math.fsum(_weights(masses, inverse))) - (masses[answer] - max(masses)) * inverse
        for masses, answer in examples
    )
    return math.fsum(losses) / len(examples)


def _weights(masses: Sequence[float], inverse: float) -> list[float]:
    highest = max(masses)
    return [math.exp((mass - highest) * inverse) for mass in masses]

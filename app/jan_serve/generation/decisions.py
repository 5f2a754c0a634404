"""Answers typed questions about one text with the probability of each option, read from the model instead of written by
it, and fits a temperature on labelled examples (Guo et al. 2017), so that 0.8 means right in four cases of five."""

from __future__ import annotations

import asyncio
import json
import math
import secrets
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from jan_serve.core.measurements import Calibration
from jan_serve.core.messages import Message
from jan_serve.core.request import ChatPrompt
from jan_serve.core.trace import current_trace
from jan_serve.errors import InvalidRequest, TemplateError, UnsupportedOperation
from jan_serve.generation.adapters import chosen_adapters
from jan_serve.generation.service import GenerationService, LeasedModel
from jan_serve.ipc.scoring import OptionQuestion, OptionWeights, WeighOptions


class Option(msgspec.Struct, frozen=True):
    """description: what it stands for; None says nothing beyond its text."""

    text: str
    description: str | None = None


class Question(msgspec.Struct, frozen=True):
    """Options are at least one, not empty, and differ."""

    text: str
    options: tuple[Option, ...]


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """Decisions in the order of the questions. adapter: the LoRA adapter of the request."""

    model: str
    adapter: str | None = None
    decisions: tuple[OptionWeights, ...]
    prompt_tokens: int
    cached_tokens: int


async def decide(
    model: LeasedModel,
    state: str,
    questions: Sequence[Question],
    *,
    instructions: str = "",
    canonical: bool = False,
) -> Decided:
    """Weigh the options of all questions about `state`, which is read once. Cancelling the call aborts the work.

    instructions: for all questions. canonical: count only the vocabulary's own tokenisation of an option.
    Raises InvalidRequest, ContextLengthExceeded (which names the questions), TemplateError, UnsupportedOperation and
    EngineFailure.
    """
    current_trace().operation = "decide"
    client = model.client
    if client.facts.is_embedding_model:
        raise UnsupportedOperation(
            f"The model `{client.name}` does not write text, so it cannot choose.", param="model"
        )
    before, after = await _around_question(model, state, instructions)
    request = WeighOptions(
        shared=(before,),
        questions=tuple(
            OptionQuestion((_asked(question) + after,), tuple(o.text for o in question.options))
            for question in questions
        ),
        canonical=canonical,
        adapters=chosen_adapters(None, client),
        cache_salt=model.cache_salt,
    )
    answer = await model.wait(client.ask(request))
    return Decided(
        model=client.name,
        adapter=client.adapter,
        decisions=answer.answers,
        prompt_tokens=answer.prompt_tokens,
        cached_tokens=answer.cached_tokens,
    )


async def _around_question(model: LeasedModel, state: str, instructions: str) -> tuple[str, str]:
    """The chat's text before and after the place of a question, which follows the state. Thinking is off."""
    place = f"[question {secrets.token_hex(8)}]"
    system = (Message(role="system", content=instructions),) if instructions else ()
    message = Message(role="user", content=f"{state}\n\n{place}")
    prompt = ChatPrompt(messages=(*system, message), template_kwargs={"enable_thinking": False})
    text = await model.chat_text(prompt)
    before, found, after = text.partition(place)
    if not found or place in after:
        raise TemplateError(
            "The chat template changes its messages: this model cannot be asked typed questions."
        )
    return before, after


def rendered(value: Any) -> str:
    """A text as it is; other JSON in one line."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _asked(question: Question) -> str:
    lines = [question.text, "Answer with exactly one of these options and nothing else:"]
    for option in question.options:
        lines.append(f"- {option.text}" + (f": {option.description}" if option.description else ""))
    return "\n".join(lines)


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
    found: dict[int, OptionWeights] = {}
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

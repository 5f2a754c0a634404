"""Typed questions about one text: the probability of each option, read from the model instead of written by it."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Sequence
from typing import Any

import msgspec

from jan_serve.core.messages import Message
from jan_serve.core.request import ChatPrompt
from jan_serve.errors import TemplateError, UnsupportedOperation
from jan_serve.generation.adapters import chosen_adapters
from jan_serve.generation.leased_model import LeasedModel
from jan_serve.ipc.scoring import OptionQuestion, WeighOptions


class Option(msgspec.Struct, frozen=True):
    """description: what it stands for; None says nothing beyond its text."""

    text: str
    description: str | None = None


class Question(msgspec.Struct, frozen=True):
    """Options are at least one, not empty, and differ."""

    text: str
    options: tuple[Option, ...]


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """log_masses: see OptionWeights. is_exact: whether they count all tokenisations, or the vocabulary's own."""

    log_masses: tuple[float, ...]
    tokenisations: tuple[int, ...]
    is_exact: bool

    @property
    def mass(self) -> float:
        """The probability that the answer is any of the options."""
        return min(1.0, math.fsum(map(math.exp, self.log_masses)))

    def shares(self, temperature: float = 1.0) -> tuple[float, ...]:
        """The probabilities among the options, which sum to 1. temperature: above 1 they are less sure."""
        logs = [value / temperature for value in self.log_masses]
        highest = max(logs)
        if highest == -math.inf:
            return (1.0 / len(logs),) * len(logs)
        weights = [math.exp(value - highest) for value in logs]
        total = math.fsum(weights)
        return tuple(weight / total for weight in weights)


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """In the order of the questions. adapter: the LoRA adapter of the request."""

    model: str
    adapter: str | None = None
    decisions: tuple[Decision, ...]
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
    client = model.client
    if client.facts.is_embedding_model:
        raise UnsupportedOperation(
            f"The model `{client.name}` does not write text, so it cannot choose.", param="model"
        )
    before, after = await _around_question(model, state, instructions)
    request = WeighOptions(
        id=client.next_id(),
        shared=(before,),
        questions=tuple(
            OptionQuestion((_asked(question) + after,), tuple(o.text for o in question.options))
            for question in questions
        ),
        canonical=canonical,
        adapters=chosen_adapters(None, client),
        cache_salt=model.cache_salt,
    )
    answer = await model.wait(client.weigh(request))
    return Decided(
        model=client.name,
        adapter=client.adapter,
        decisions=tuple(
            Decision(
                log_masses=weights.log_masses,
                tokenisations=weights.tokenisations,
                is_exact=weights.is_exact,
            )
            for weights in answer.answers
        ),
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

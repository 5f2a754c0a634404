"""Wire types of typed decisions. System One's are those of https://docs.typesafe.ai/api, as llama-server has them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from jan_serve.api.dialects.decisions.limits import MAX_LEVELS, MAX_OPTIONS, MAX_QUESTIONS
from jan_serve.api.shared.wire_types import AtMost, Between, FirstError, Int, WireModel

Content = str | dict[str, Any] | list[Any]


class DescribedOption(WireModel):
    text: str
    description: str | None = None


class DecideQuestion(WireModel):
    """choice: one of `options`. yes_no: no options. number: the integers from `min` to `max`."""

    question: str
    type: Literal["choice", "yes_no", "number"] = "choice"
    options: Annotated[
        Annotated[list[str | Int | float | DescribedOption], FirstError()] | None,
        AtMost(MAX_OPTIONS, "options"),
    ] = None
    min: Int | None = None
    max: Int | None = None
    threshold: Annotated[
        Annotated[float, Between(0, 1)] | None,
        Field(description="Abstain if the best option has a smaller probability."),
    ] = None


class DecideRequest(WireModel):
    """Questions about a text or a JSON value, by names of your choice."""

    model: str | None = None
    state: Content
    instructions: str = ""
    questions: Annotated[dict[str, DecideQuestion], AtMost(MAX_QUESTIONS, "questions")]
    temperature: Annotated[
        Annotated[float, Between(0.01, 100)], Field(description="Above 1 the probabilities are less sure.")
    ] = 1.0
    tokenisations: Annotated[
        Literal["all", "canonical"],
        Field(description="canonical: count only the way in which the vocabulary would write an option."),
    ] = "all"


class OptionShare(TypedDict):
    """probability: among the options. logprob: of the option itself, among all that the model could write."""

    option: str | int | float | bool
    probability: float
    logprob: float | None
    tokenisations: int


class DecideAnswer(TypedDict):
    """answer: null if the model abstains. mass: the probability that it writes any of the options."""

    answer: str | int | float | bool | None
    abstained: bool
    probability: float
    mass: float
    tokenisations: Literal["all", "canonical"]
    options: list[OptionShare]


class DecideUsage(TypedDict):
    prompt_tokens: int
    total_tokens: int
    cached_tokens: int


class DecideReply(BaseModel):
    model: str
    answers: dict[str, DecideAnswer]
    usage: DecideUsage


class NoulCriteria(WireModel):
    true: Content | None = None
    false: Content | None = None


class NoulQuestion(WireModel):
    """Whether a statement is true."""

    type: Literal["noul"]
    instructions: Content
    criteria: NoulCriteria | None = None


class ChoiceQuestion(WireModel):
    """criteria: the options, with a description or null."""

    type: Literal["choice"]
    instructions: Content
    criteria: Annotated[dict[str, Content | None], AtMost(MAX_OPTIONS, "criteria")]


class ScoreQuestion(WireModel):
    """criteria: the levels, the lowest first."""

    type: Literal["score"]
    instructions: Content
    criteria: Annotated[list[Content], AtMost(MAX_LEVELS, "criteria")]


SystemOneQuestion = Annotated[NoulQuestion | ChoiceQuestion | ScoreQuestion, Field(discriminator="type")]


class SystemOneRequest(WireModel):
    model: str | None = None
    state: Content
    questions: Annotated[dict[str, SystemOneQuestion], AtMost(MAX_QUESTIONS, "questions")]


class SystemOneUsage(TypedDict):
    input_tokens: int
    output_tokens: int


class SystemOneReply(BaseModel):
    """Answers of the types of their questions: `noul`; `choice`; `score` with `legend`. The last two have
    `probabilities` and `confidence`.
    """

    model: str
    answers: dict[str, dict[str, Any]]
    usage: SystemOneUsage

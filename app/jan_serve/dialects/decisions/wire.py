"""Wire types of typed decisions, and caps of a request beside the size of its body.

System One's types are those of https://docs.typesafe.ai/api, as llama-server has them.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from jan_serve.dialects.shared.wire_types import AtMost, Between, FirstError, Int, WireModel

MAX_QUESTIONS: Final = 256
MAX_OPTIONS: Final = 255
MAX_ASKED: Final = 1024
"""Questions of a request, where each option of a question of the type `several` is one."""
MAX_LEVELS: Final = 10
MAX_EXAMPLES: Final = 1000


_CALIBRATED: Final = "Correct the probabilities by the model's calibration (`POST /v1/decide/calibration`)."
Content = str | dict[str, Any] | list[Any]


class DescribedOption(WireModel):
    text: str
    description: str | None = None


class TypedQuestion(WireModel):
    """choice: one of `options`. several: any of `options`; whether it applies is asked of each. yes_no: no options.
    number: the integers from `min` to `max`.
    """

    question: str
    type: Literal["choice", "several", "yes_no", "number"] = "choice"
    options: Annotated[
        Annotated[list[str | Int | float | DescribedOption], FirstError()] | None,
        AtMost(MAX_OPTIONS, "options"),
    ] = None
    min: Int | None = None
    max: Int | None = None


class DecideQuestion(TypedQuestion):
    threshold: Annotated[
        Annotated[float, Between(0, 1)] | None,
        Field(
            description="Abstain if the best option has a smaller probability. Of `several`, the answer is those that"
            " reach it; 0.5 by default."
        ),
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
    calibrated: Annotated[bool, Field(description=_CALIBRATED)] = False


class OptionShare(TypedDict):
    """probability: among the options; of `several`, that it applies. logprob: of the option itself (of `several`: of
    yes), among all that the model could write.
    """

    option: str | int | float | bool
    probability: float
    logprob: float | None
    tokenisations: int


class DecideAnswer(TypedDict):
    """answer: null if the model abstains; a list of `several`. probability: of the answer; of `several`, of the least
    sure decision. mass: the probability that the model writes any of the options; of `several`, the least one.
    """

    answer: str | int | float | bool | list[str | int | float] | None
    abstained: bool
    probability: float
    mass: float
    tokenisations: Literal["all", "canonical"]
    options: list[OptionShare]


class DecideUsage(TypedDict):
    prompt_tokens: int
    total_tokens: int
    cached_tokens: int


class AppliedCalibration(TypedDict):
    """examples: how many the temperature was fitted on."""

    temperature: float
    examples: int


class DecideReply(BaseModel):
    """calibration: null unless it was asked for."""

    model: str
    answers: dict[str, DecideAnswer]
    calibration: AppliedCalibration | None
    usage: DecideUsage


class CalibrationExample(TypedQuestion):
    """A question about a text, with the right answer: one of its options, a number, or true or false."""

    state: Content
    answer: str | Int | float | bool


class CalibrateRequest(WireModel):
    """instructions and tokenisations: as the requests that will use the calibration have them."""

    model: str | None = None
    instructions: str = ""
    examples: Annotated[Annotated[list[CalibrationExample], FirstError()], AtMost(MAX_EXAMPLES, "examples")]
    tokenisations: Literal["all", "canonical"] = "all"


class FittedCalibration(TypedDict):
    """accuracy: the share of examples whose answer is the most probable option. loss_before, loss_after: the mean
    negative logarithm of the answers' probabilities, uncalibrated and calibrated. at_bound: whether a better
    temperature is outside 0.1 to 10.
    """

    temperature: float
    examples: int
    accuracy: float
    loss_before: float
    loss_after: float
    at_bound: bool


class CalibrationReply(BaseModel):
    """calibration: null if the model has none."""

    model: str
    calibration: FittedCalibration | None


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
    calibrated: Annotated[bool, Field(description=_CALIBRATED)] = False


class SystemOneUsage(TypedDict):
    input_tokens: int
    output_tokens: int


class SystemOneReply(BaseModel):
    """Answers of the types of their questions: `noul`; `choice`; `score` with `legend`. The last two have
    `probabilities` and `confidence`. calibration: there if it was asked for.
    """

    model: str
    answers: dict[str, dict[str, Any]]
    calibration: AppliedCalibration | None = None
    usage: SystemOneUsage

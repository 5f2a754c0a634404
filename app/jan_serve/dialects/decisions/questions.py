"""Typed decisions: their wire types (System One's: https://docs.typesafe.ai/api), caps, and the questions they ask."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from jan_serve.dialects.shared.wire_types import AtMost, Between, FirstError, Int, WireModel, wrong
from jan_serve.errors import InvalidRequest
from jan_serve.generation.decisions import LabelledQuestion, Option, Question, rendered

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
    threshold: Annotated[float, Between(0, 1)] | None = Field(
        None,
        description="Abstain if the best option has a smaller probability. Of `several`, the answer is those that"
        " reach it; 0.5 by default.",
    )


class DecideRequest(WireModel):
    """Questions about a text or a JSON value, by names of your choice."""

    model: str | None = None
    state: Content
    instructions: str = ""
    questions: Annotated[dict[str, DecideQuestion], AtMost(MAX_QUESTIONS, "questions")]
    temperature: Annotated[
        Annotated[float, Between(0.01, 100)], Field(description="Above 1 the probabilities are less sure.")
    ] = 1.0
    tokenisations: Literal["all", "canonical"] = Field(
        "all", description="canonical: count only the way in which the vocabulary would write an option."
    )
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


Value = str | int | float | bool

_YES_NO: Final = (Option("yes"), Option("no"))


class AskedQuestion(NamedTuple):
    """values: what the answer is, by option of the question; of `several`, by question."""

    questions: tuple[Question, ...]
    values: tuple[Value, ...]


def labelled_question(field: str, example: CalibrationExample) -> LabelledQuestion:
    """Raises InvalidRequest, which names the field of the example."""
    if example.type == "several":
        raise InvalidRequest(f"{field}.type: ask `yes_no` of each option to calibrate", param="examples")
    [question], values = _typed_question(field, example)
    if len(values) < 2:
        raise InvalidRequest(f"{field}.options: at least two are needed to calibrate", param="examples")
    # JSON has true beside 1, which Python does not tell apart.
    wanted = (isinstance(example.answer, bool), example.answer)
    keys = [(isinstance(value, bool), value) for value in values]
    if wanted not in keys:
        raise InvalidRequest(
            f"{field}.answer: {str(example.answer)[:80]!r} is not an option", param="examples"
        )
    return LabelledQuestion(rendered(example.state), question, keys.index(wanted))


def decide_questions(body: DecideRequest) -> dict[str, AskedQuestion]:
    """Raises InvalidRequest, which names the question."""
    _check_some(body.questions)
    asked = {name: _typed_question(f"questions.{name}", one) for name, one in body.questions.items()}
    if (count := sum(len(one.questions) for one in asked.values())) > MAX_ASKED:
        raise wrong("questions", f"{count} with each option of `several`, the limit is {MAX_ASKED}")
    return asked


def system_one_questions(body: SystemOneRequest) -> dict[str, AskedQuestion]:
    """Raises InvalidRequest, which names the question."""
    _check_some(body.questions)
    return {name: _system_one_question(name, question) for name, question in body.questions.items()}


def _applies(question: Question, option: Option) -> Question:
    what = option.text if option.description is None else f"{option.text} ({option.description})"
    return Question(f"{question.text}\nDoes this apply: {what}?", _YES_NO)


def _typed_question(place: str, body: TypedQuestion) -> AskedQuestion:
    field = f"{place}.options"
    if body.type in ("yes_no", "number") and body.options is not None:
        raise InvalidRequest(f"{field}: only a choice and `several` have options", param="options")
    match body.type:
        case "yes_no":
            return AskedQuestion((Question(body.question, _YES_NO),), (True, False))
        case "number":
            if body.min is None or body.max is None or not 0 <= body.max - body.min < MAX_OPTIONS:
                raise InvalidRequest(
                    f"{place}: a number needs `min` and `max`, and {MAX_OPTIONS} values at most",
                    param="questions",
                )
            numbers = tuple(range(body.min, body.max + 1))
            return _checked(field, body.question, [Option(str(number)) for number in numbers], numbers)
        case "choice":
            return _choice(field, body)
        case "several":
            [question], values = _choice(field, body)
            return AskedQuestion(tuple(_applies(question, option) for option in question.options), values)


def _choice(field: str, body: TypedQuestion) -> AskedQuestion:
    options = [_option(item) for item in body.options or ()]
    values = tuple(item.text if isinstance(item, DescribedOption) else item for item in body.options or ())
    return _checked(field, body.question, options, values)


def _option(item: str | int | float | DescribedOption) -> Option:
    if isinstance(item, DescribedOption):
        return Option(item.text, item.description)
    return Option(item if isinstance(item, str) else str(item).removesuffix(".0"))


def _system_one_question(name: str, body: NoulQuestion | ChoiceQuestion | ScoreQuestion) -> AskedQuestion:
    field, asked = f"questions.{name}.criteria", rendered(body.instructions)
    match body:
        case NoulQuestion(criteria=criteria):
            sides = (None, None) if criteria is None else (criteria.true, criteria.false)
            options = [_described(text, side) for text, side in zip(("yes", "no"), sides, strict=True)]
            return AskedQuestion((Question(asked, tuple(options)),), (True, False))
        case ChoiceQuestion(criteria=choices):
            options = [_described(text, what) for text, what in choices.items()]
            return _checked(field, asked, options, tuple(choices))
        case ScoreQuestion(criteria=levels):
            options = [_described(str(level), what) for level, what in enumerate(levels)]
            return _checked(field, asked, options, tuple(range(len(levels))))


def _described(text: str, what: Content | None) -> Option:
    return Option(text, None if what is None else rendered(what))


def _checked(field: str, text: str, options: list[Option], values: tuple[Value, ...]) -> AskedQuestion:
    if not options:
        raise InvalidRequest(f"{field}: at least one option is needed", param="options")
    texts = [option.text for option in options]
    for index, option in enumerate(texts):
        if not option.strip():
            raise InvalidRequest(f"{field}: option {index} is empty", param="options")
        if option in texts[:index]:
            raise InvalidRequest(f"{field}: {option[:80]!r} occurs twice", param="options")
    return AskedQuestion((Question(text, tuple(options)),), values)


def _check_some(questions: object) -> None:
    if not questions:
        raise wrong("questions", "at least one question is needed")

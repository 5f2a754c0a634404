"""Requests as questions with options. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from jan_serve.dialects.decisions.wire import (
    MAX_ASKED,
    MAX_OPTIONS,
    CalibrateRequest,
    CalibrationExample,
    ChoiceQuestion,
    Content,
    DecideRequest,
    DescribedOption,
    NoulQuestion,
    ScoreQuestion,
    SystemOneRequest,
    TypedQuestion,
)
from jan_serve.errors import InvalidRequest
from jan_serve.generation.decisions import LabelledQuestion, Option, Question, rendered

Value = str | int | float | bool

_YES_NO: Final = (Option("yes"), Option("no"))


class AskedQuestion(NamedTuple):
    """values: what the answer is, by option of the question; of `several`, by question."""

    questions: tuple[Question, ...]
    values: tuple[Value, ...]


def labelled_questions(body: CalibrateRequest) -> list[LabelledQuestion]:
    """Raises InvalidRequest, which names the example."""
    return [_labelled(f"examples.{index}", example) for index, example in enumerate(body.examples)]


def _labelled(field: str, example: CalibrationExample) -> LabelledQuestion:
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
        raise InvalidRequest(
            f"questions: {count} with each option of `several`, the limit is {MAX_ASKED}", param="questions"
        )
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
        raise InvalidRequest("questions: at least one question is needed", param="questions")

"""Typed decisions over a fake model whose options have the probabilities 1/2, 1/4, 1/8, ..."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.dialects.decisions.routes import choice_confidence, score_confidence
from jan_serve.ipc.scoring import OptionWeights
from tests.support.engine.fake_client import FakeClient, FakeModels, fake_facts
from tests.support.engine.fake_vocabulary import CHAT_TEMPLATE
from tests.support.servers.fronts import http_client

anyio = pytest.mark.anyio
ASKED: dict[str, Any] = {
    "team": {"question": "Which team?", "options": ["billing", {"text": "sales", "description": "prices"}]},
    "urgent": {"question": "Urgent?", "type": "yes_no"},
    "stars": {"question": "How many stars?", "type": "number", "min": 1, "max": 3},
}
NOUL = {"type": "noul", "instructions": "?"}
BODY: dict[str, Any] = {"state": {"ticket": "charged twice"}, "questions": ASKED}


def model(template: str = CHAT_TEMPLATE, **facts: Any) -> FakeModels:
    return FakeModels(FakeClient(facts=fake_facts(chat_templates={"default": template}, **facts)))


async def call(path: str, body: Any, models: FakeModels | None = None) -> tuple[int, Any]:
    async with http_client(models or model()) as client:
        response = await client.post(path, json=body)
    return response.status_code, response.json()


@anyio
async def test_questions_branch_from_the_state() -> None:
    models = model()
    status, reply = await call("/v1/decide", BODY, models)
    assert status == 200
    [asked] = models.clients[0].weighed
    assert '{"ticket": "charged twice"}' in "".join(str(piece) for piece in asked.shared)
    assert [question.options for question in asked.questions] == [
        ("billing", "sales"),
        ("yes", "no"),
        ("1", "2", "3"),
    ]
    assert "- sales: prices" in str(asked.questions[0].prompt[0])
    assert reply["usage"] == {"prompt_tokens": 7, "total_tokens": 7, "cached_tokens": 3}
    assert {name: answer["answer"] for name, answer in reply["answers"].items()} == {
        "team": "billing",
        "urgent": True,
        "stars": 1,
    }
    team = reply["answers"]["team"]
    assert [item["probability"] for item in team["options"]] == pytest.approx([2 / 3, 1 / 3])
    assert (team["mass"], team["tokenisations"], team["abstained"]) == (pytest.approx(0.75), "all", False)


@anyio
@pytest.mark.parametrize(
    ("threshold", "answer", "probability"), [({}, ["a", "b", 2], 2 / 3), ({"threshold": 0.7}, [], 1 / 3)]
)
async def test_each_of_several_options_is_decided(
    threshold: dict[str, float], answer: list[Any], probability: float
) -> None:
    models = model()
    tags = {"question": "Which?", "type": "several", "options": ["a", {"text": "b", "description": "B"}, 2]}
    questions = {"tags": {**tags, **threshold}, "sure": {"question": "?", "type": "yes_no"}}
    _, reply = await call("/v1/decide", {"state": "s", "questions": questions}, models)
    asked = models.clients[0].weighed[0].questions
    assert [question.options for question in asked] == [("yes", "no")] * 4
    assert "Which?\nDoes this apply: b (B)?" in str(asked[1].prompt[0])
    found = reply["answers"]["tags"]
    assert (found["answer"], found["probability"]) == (answer, pytest.approx(probability))
    assert [(item["option"], item["probability"]) for item in found["options"]] == [
        (value, pytest.approx(2 / 3)) for value in ("a", "b", 2)
    ]
    assert reply["answers"]["sure"]["answer"] is True


@anyio
async def test_numbers_are_written_as_they_were_sent() -> None:
    models = model()
    options = [0.1234567, 2.0, 3, -1.5]
    _, reply = await call(
        "/v1/decide", {"state": "s", "questions": {"q": {"question": "?", "options": options}}}, models
    )
    assert models.clients[0].weighed[0].questions[0].options == ("0.1234567", "2", "3", "-1.5")
    assert [item["option"] for item in reply["answers"]["q"]["options"]] == options


@anyio
async def test_below_the_threshold_it_abstains() -> None:
    question = {"question": "?", "options": ["a", "b"], "threshold": 0.7}
    _, reply = await call("/v1/decide", {"state": "s", "questions": {"q": question}})
    answer = reply["answers"]["q"]
    assert (answer["answer"], answer["abstained"]) == (None, True)
    _, reply = await call("/v1/decide", {"state": "s", "questions": {"q": question | {"threshold": 0.6}}})
    assert reply["answers"]["q"]["answer"] == "a"


@anyio
async def test_a_temperature_makes_it_less_sure() -> None:
    question = {"q": {"question": "?", "options": ["a", "b"]}}
    _, reply = await call("/v1/decide", {"state": "s", "questions": question, "temperature": 2.0})
    assert reply["answers"]["q"]["probability"] == pytest.approx(2**0.5 / (1 + 2**0.5))


@anyio
async def test_system_one() -> None:
    questions = {
        "refund": {"type": "noul", "instructions": "Refund asked?", "criteria": {"true": "money back"}},
        "team": {"type": "choice", "instructions": "Team?", "criteria": {"billing": "money", "eng": None}},
        "severity": {"type": "score", "instructions": {"ask": "How bad?"}, "criteria": ["minor", "blocked"]},
    }
    models = model()
    status, reply = await call(
        "/v1/systemone", {"model": "fake", "state": "s", "questions": questions}, models
    )
    assert status == 200
    third = pytest.approx(1 / 3)
    assert reply == {
        "model": "fake",
        "answers": {
            "refund": {"type": "noul", "noul": pytest.approx(2 / 3)},
            "team": {
                "type": "choice",
                "choice": "billing",
                "probabilities": {"billing": pytest.approx(2 / 3), "eng": third},
                "confidence": third,
            },
            "severity": {
                "type": "score",
                "score": third,
                "legend": {"0": "minor", "1": "blocked"},
                "probabilities": {"0": pytest.approx(2 / 3), "1": third},
                "confidence": third,
            },
        },
        "usage": {"input_tokens": 7, "output_tokens": 0},
    }
    assert "- yes: money back" in str(models.clients[0].weighed[0].questions[0].prompt[0])


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no questions": ({}, "questions: at least one"),
    "no options": ({"q": {"question": "?"}}, "questions.q.options: at least one"),
    "an empty list": ({"q": {"question": "?", "options": []}}, "at least one option"),
    "a duplicate": ({"q": {"question": "?", "options": ["a", "b", "a"]}}, "'a' occurs twice"),
    "an empty option": ({"q": {"question": "?", "options": ["a", " "]}}, "option 1 is empty"),
    "options of yes or no": ({"q": {"question": "?", "type": "yes_no", "options": ["a"]}}, "only a choice"),
    "no options of several": (
        {"q": {"question": "?", "type": "several"}},
        "questions.q.options: at least one",
    ),
    "too many of several": (
        {
            str(i): {"question": "?", "type": "several", "options": list(map(str, range(250)))}
            for i in range(5)
        },
        "1250 with each option of `several`, the limit is 1024",
    ),
    "a number without a range": ({"q": {"question": "?", "type": "number", "min": 1}}, "`min` and `max`"),
    "too many numbers": ({"q": {"question": "?", "type": "number", "min": 0, "max": 999}}, "255 values"),
    "too many options": ({"q": {"question": "?", "options": list(map(str, range(300)))}}, "limit is 255"),
    "a number and its text": ({"q": {"question": "?", "options": [1, "1"]}}, "'1' occurs twice"),
    "the same number twice": ({"q": {"question": "?", "options": [2, 2.0]}}, "'2' occurs twice"),
    "too many questions": (
        {str(number): {"question": "?", "type": "yes_no"} for number in range(300)},
        "limit is 256",
    ),
}


@anyio
@pytest.mark.parametrize("case", REFUSED)
async def test_a_wrong_question_is_told_what_is_wrong(case: str) -> None:
    questions, words = REFUSED[case]
    status, reply = await call("/v1/decide", {"state": "s", "questions": questions})
    assert status == 400
    assert words in reply["error"]["message"]


@anyio
@pytest.mark.parametrize(
    ("question", "words"),
    [
        ({"type": "choice", "criteria": {}}, "questions.q.criteria: at least one option"),
        ({"type": "choice", "criteria": {"": None, "a": None}}, "option 0 is empty"),
        ({"type": "score", "criteria": []}, "at least one option"),
        ({"type": "score", "criteria": ["level"] * 11}, "limit is 10"),
    ],
)
async def test_a_wrong_question_of_system_one_is_told_what_is_wrong(
    question: dict[str, Any], words: str
) -> None:
    body = {"state": "s", "questions": {"q": {"instructions": "?"} | question}}
    status, reply = await call("/v1/systemone", body)
    assert status == 400
    assert words in reply["error"]["message"]


EXAMPLE: dict[str, Any] = {"state": "s", "question": "?", "options": ["a", "b"], "answer": "a"}
REFUSED_EXAMPLES: dict[str, tuple[list[dict[str, Any]], str]] = {
    "too few": ([EXAMPLE] * 9, "9 are too few to fit a temperature, which needs 10"),
    "none": ([], "0 are too few"),
    "too many": ([EXAMPLE] * 1001, "limit is 1000"),
    "no option": ([EXAMPLE, EXAMPLE | {"answer": "c"}], "examples.1.answer: 'c' is not an option"),
    "true is not 1": (
        [{"state": "s", "question": "?", "type": "number", "min": 0, "max": 1, "answer": True}],
        "examples.0.answer: 'True' is not an option",
    ),
    "several": ([EXAMPLE | {"type": "several"}], "examples.0.type: ask `yes_no` of each option"),
    "one option": ([EXAMPLE | {"options": ["a"]}], "examples.0.options: at least two"),
    "a duplicate": ([EXAMPLE | {"options": ["a", "a"]}], "examples.0.options: 'a' occurs twice"),
}


@anyio
@pytest.mark.parametrize("case", REFUSED_EXAMPLES)
async def test_wrong_examples_are_refused(case: str) -> None:
    examples, words = REFUSED_EXAMPLES[case]
    async with http_client(model()) as client:
        kept = await client.post("/v1/decide/calibration", json={"examples": examples})
    assert kept.status_code == 400
    assert words in kept.json()["error"]["message"]


@anyio
async def test_a_calibrated_request_has_no_temperature_of_its_own() -> None:
    status, reply = await call("/v1/decide", BODY | {"calibrated": True, "temperature": 2.0})
    assert (status, reply["error"]["param"]) == (400, "temperature")
    for path, body in (("/v1/decide", BODY), ("/v1/systemone", {"state": "s", "questions": {"q": NOUL}})):
        status, reply = await call(path, body | {"calibrated": True})
        assert status == 400 and "keeps no calibrations" in reply["error"]["message"]


@anyio
@pytest.mark.parametrize("path", ["/v1/decide", "/v1/systemone"])
@pytest.mark.parametrize("member", [{"state": 1}, {"questions": []}, {"questions": {"q": {"type": "other"}}}])
async def test_a_broken_schema_is_refused(path: str, member: dict[str, Any]) -> None:
    status, _ = await call(path, {"state": "s", "questions": {}} | member)
    assert status == 422


@anyio
async def test_a_model_that_cannot_be_asked_is_refused() -> None:
    status, reply = await call("/v1/decide", BODY, model(is_embedding_model=True))
    assert status == 400 and "does not write text" in reply["error"]["message"]
    status, reply = await call("/v1/decide", BODY, model("{{ messages[0].content | upper }}"))
    assert status == 400 and "typed questions" in reply["error"]["message"]


@given(masses=st.lists(st.floats(-2000, 0), min_size=1, max_size=20), temperature=st.floats(0.05, 20))
def test_shares_sum_to_one(masses: list[float], temperature: float) -> None:
    decision = OptionWeights(log_masses=tuple(masses), tokenisations=(1,) * len(masses), is_exact=True)
    shares = decision.shares(temperature)
    assert sum(shares) == pytest.approx(1.0)
    assert masses[shares.index(max(shares))] == pytest.approx(max(masses), abs=1e-9)
    assert 0.0 <= choice_confidence(shares) <= 1.0
    assert 0.0 <= score_confidence(shares) <= 1.0

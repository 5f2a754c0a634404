from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from jan_serve.constraint.regex.language import translate as regex_to_grammar
from jan_serve.core.constraint import (
    Constraint,
    GbnfConstraint,
    JsonObjectConstraint,
    JsonSchemaConstraint,
    PropertyOrder,
    RegexConstraint,
    Whitespace,
)
from jan_serve.core.request import GenerationRequest
from jan_serve.dialects.openai.llama_server import InfillRequest, infill_request
from jan_serve.dialects.openai.responses.parse import response_request
from jan_serve.dialects.openai.responses.store import ResponseStore
from jan_serve.dialects.openai.responses.wire import CreateResponseRequest
from jan_serve.errors import InvalidRequest
from tests.unit.constraint.recognizer import matches
from tests.unit.dialects.openai_requests import chat, completion

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {}}}


@pytest.mark.parametrize(
    ("response_format", "constraint"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, JsonObjectConstraint()),
        ({"type": "json_object", "schema": None}, JsonObjectConstraint()),
        ({"type": "json_object", "schema": SCHEMA}, JsonSchemaConstraint(SCHEMA)),
        ({"type": "json_object", "value": SCHEMA}, JsonSchemaConstraint(SCHEMA)),
        ({"type": "json", "value": SCHEMA}, JsonSchemaConstraint(SCHEMA)),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
            JsonSchemaConstraint(SCHEMA),
        ),
        ({"type": "json_schema", "value": {"name": "n", "schema": SCHEMA}}, JsonSchemaConstraint(SCHEMA)),
        ({"type": "json_schema", "json_schema": {"name": "n", "schema": False}}, JsonSchemaConstraint(False)),
        ({"type": "json_object", "whitespace": "compact"}, JsonObjectConstraint(Whitespace.COMPACT)),
        (
            {"type": "json_schema", "json_schema": {"schema": SCHEMA}, "whitespace": "flexible"},
            JsonSchemaConstraint(SCHEMA, Whitespace.FLEXIBLE),
        ),
        (
            {"type": "json_schema", "json_schema": {"schema": SCHEMA}, "property_order": "any"},
            JsonSchemaConstraint(SCHEMA, property_order=PropertyOrder.ANY),
        ),
        ({"type": "regex", "value": "a+"}, RegexConstraint("a+")),
        ({"type": "regex_schema", "regex_schema": "a+"}, RegexConstraint("a+")),
    ],
)
def test_spellings_of_response_format(response_format: dict[str, Any], constraint: Constraint | None) -> None:
    assert chat(response_format=response_format).constraint == constraint


def test_grammars_of_a_format() -> None:
    for form in (
        {"type": "grammar", "grammar": "root ::= x"},
        {"type": "grammar", "value": "root ::= x"},
        {"type": "ebnf", "ebnf": "root ::= x"},
    ):
        assert chat(response_format=form).constraint == GbnfConstraint("root ::= x")


@pytest.mark.parametrize("schema", [3, "x", [], "[]", '{"a"', "3"])
def test_a_schema_is_an_object_or_a_boolean(schema: Any) -> None:
    for field, value in (
        ("response_format", {"type": "json_object", "schema": schema}),
        ("guided_json", schema),
        ("json_schema", schema),
    ):
        with pytest.raises(InvalidRequest) as caught:
            chat(**{field: value})
        assert caught.value.param == field


CHOICE = RegexConstraint(r"a\.b|c\/\(d\)")
GRAMMAR = GbnfConstraint('root ::= "a"')
OF_SCHEMA = JsonSchemaConstraint(SCHEMA)
TEXT = json.dumps(SCHEMA)
FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}

SPELLINGS: list[tuple[str, Any, Constraint]] = [
    ("response_format", FORMAT, OF_SCHEMA),
    ("response_format", {"type": "json_schema", "json_schema": SCHEMA}, OF_SCHEMA),
    ("response_format", {"type": "json_object", "json_schema": SCHEMA}, OF_SCHEMA),
    ("response_format", {"type": "json_schema", "schema": TEXT}, OF_SCHEMA),
    ("response_format", {"type": "regex", "pattern": "a+"}, RegexConstraint("a+")),
    ("response_format", {"type": "regex", "regex": "a+"}, RegexConstraint("a+")),
    ("response_format", {"type": "regex", "regex": {"regex": "a+"}}, RegexConstraint("a+")),
    ("text", {"format": {"type": "json_schema", "schema": SCHEMA, "name": "n"}}, OF_SCHEMA),
    ("output_config", {"format": {"type": "json_schema", "schema": SCHEMA}, "effort": "low"}, OF_SCHEMA),
    ("output_format", {"type": "json_schema", "schema": SCHEMA}, OF_SCHEMA),
    ("grammar", GRAMMAR.text, GRAMMAR),
    ("grammar", {"type": "json", "value": SCHEMA}, OF_SCHEMA),
    ("grammar", {"type": "regex", "value": "a+"}, RegexConstraint("a+")),
    ("grammar_string", GRAMMAR.text, GRAMMAR),
    ("ebnf", GRAMMAR.text, GRAMMAR),
    ("guided_grammar", GRAMMAR.text, GRAMMAR),
    ("json_schema", SCHEMA, OF_SCHEMA),
    ("json_schema", TEXT, OF_SCHEMA),
    ("json_schema", True, JsonSchemaConstraint(True)),
    ("guided_json", SCHEMA, OF_SCHEMA),
    ("guided_json", TEXT, OF_SCHEMA),
    ("guided_json_object", True, JsonObjectConstraint()),
    ("guided_regex", "a+", RegexConstraint("a+")),
    ("regex", "a+", RegexConstraint("a+")),
    ("regex_pattern", "a+", RegexConstraint("a+")),
    ("guided_choice", ["a.b", "c/(d)"], CHOICE),
    ("format", "json", JsonObjectConstraint()),
    ("format", SCHEMA, OF_SCHEMA),
    ("nvext", {"guided_json": SCHEMA}, OF_SCHEMA),
    ("nvext", {"guided_choice": ["a.b", "c/(d)"]}, CHOICE),
    ("structured_outputs", {"json": SCHEMA}, OF_SCHEMA),
    ("structured_outputs", {"json": TEXT}, OF_SCHEMA),
    ("structured_outputs", {"json_object": True}, JsonObjectConstraint()),
    ("structured_outputs", {"regex": "a+"}, RegexConstraint("a+")),
    ("structured_outputs", {"choice": ["a.b", "c/(d)"]}, CHOICE),
    ("structured_outputs", {"grammar": GRAMMAR.text}, GRAMMAR),
    (
        "structured_outputs",
        {"json": SCHEMA, "disable_any_whitespace": True},
        JsonSchemaConstraint(SCHEMA, Whitespace.COMPACT),
    ),
]


def of_chat(**body: Any) -> GenerationRequest:
    return chat(**body)


def of_response(**body: Any) -> GenerationRequest:
    request = CreateResponseRequest.model_validate({"input": "Hi"} | body)
    return response_request(request, (), list(ResponseStore(1 << 20).resolved("", request.input))).generation


def of_infill(**body: Any) -> GenerationRequest:
    return infill_request(InfillRequest.model_validate(body))


ROUTES = [of_chat, completion, of_response, of_infill]
Route = Callable[..., GenerationRequest]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("field", "value", "constraint"), SPELLINGS)
def test_every_spelling_is_honoured_on_every_route(
    route: Route, field: str, value: Any, constraint: Constraint
) -> None:
    request = route(**{field: value})
    assert request.constraint == constraint
    assert request.constraint_field.split(".")[0] == field


ABSENT: list[dict[str, Any]] = [
    *({field: None} for field, _, _ in SPELLINGS if field not in ("text",)),
    {"format": ""},
    *({field: False} for field in ("guided_json_object", "grammar_lazy", "structured_outputs")),
    {"structured_outputs": True},
    {"structured_outputs": {}},
    {"structured_outputs": {"json": None, "backend": "xgrammar", "disable_fallback": True}},
    {"output_config": {"effort": "high"}},
    {"nvext": {"greed_sampling": True}},
    {"guided_decoding_backend": "xgrammar"},
    {"bad_words": [], "allowed_token_ids": []},
    {"response_format": {"type": "text"}},
]


@pytest.mark.parametrize("body", ABSENT)
def test_an_absent_constraint_is_none(body: dict[str, Any]) -> None:
    for route in ROUTES:
        assert route(**body).constraint is None


def test_an_empty_text_is_no_absent_constraint() -> None:
    for field in ("grammar", "ebnf", "guided_grammar", "grammar_string"):
        assert chat(**{field: ""}).constraint == GbnfConstraint("")
    for field in ("regex", "guided_regex"):
        assert chat(**{field: ""}).constraint == RegexConstraint("")


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"structural_tag": '{"structures": []}'}, "structural_tag"),
    ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag"),
    ({"response_format": {"type": "structural_tag", "structures": [], "triggers": []}}, "response_format"),
    ({"grammar": "g", "grammar_lazy": True}, "grammar_lazy"),
    ({"guided_whitespace_pattern": "[ ]?"}, "guided_whitespace_pattern"),
    (
        {"structured_outputs": {"json": {}, "whitespace_pattern": " "}},
        "structured_outputs.whitespace_pattern",
    ),
    ({"allowed_token_ids": [1, 2]}, "allowed_token_ids"),
    ({"bad_words": ["x"]}, "bad_words"),
    ({"guided_choice": []}, "guided_choice"),
    ({"guided_choice": "a"}, "guided_choice"),
    ({"guided_choice": [1]}, "guided_choice"),
    ({"guided_choice": ["a"] * 10_001}, "guided_choice"),
    ({"guided_json_object": "yes"}, "guided_json_object"),
    ({"guided_regex": 3}, "guided_regex"),
    ({"ebnf": ["a"]}, "ebnf"),
    ({"guided_json": ""}, "guided_json"),
    ({"format": "xml"}, "format"),
    ({"format": 3}, "format"),
    ({"output_format": {"type": "xml"}}, "output_format"),
    ({"output_format": "json"}, "output_format"),
    ({"response_format": {"type": "grammar"}}, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}, "response_format"),
    # Two that contradict each other.
    ({"grammar": "g", "response_format": {"type": "json_object"}}, "grammar"),
    ({"guided_json": {"type": "integer"}, "response_format": {"type": "json_object"}}, "guided_json"),
    ({"guided_regex": "a", "guided_choice": ["b"]}, "guided_choice"),
    ({"json_schema": {"const": 1}, "guided_json": {"const": True}}, "guided_json"),
    ({"structured_outputs": {"regex": "a", "json": {}}}, "structured_outputs.regex"),
]


@pytest.mark.parametrize(("body", "field"), REFUSED)
def test_what_cannot_be_honoured_is_refused_by_name(body: dict[str, Any], field: str) -> None:
    for route in ROUTES:
        with pytest.raises(InvalidRequest) as caught:
            route(**body)
        assert caught.value.param == field
        assert caught.value.message.startswith(f"{field}")


@pytest.mark.parametrize(
    "body",
    [
        {"response_format": FORMAT, "guided_json": SCHEMA},
        {"response_format": {"type": "json_object"}, "json_schema": SCHEMA},
        {"response_format": FORMAT, "guided_json_object": True},
        {"response_format": {"type": "text"}, "structured_outputs": {"json": SCHEMA}},
    ],
)
def test_two_that_agree_are_one(body: dict[str, Any]) -> None:
    assert chat(**body).constraint == OF_SCHEMA


def test_a_choice_is_exactly_one_of_its_texts() -> None:
    texts = ["", "a|b", "x\\n\ny", "^$", "é😀", "[a-z]{2}", 'q"', "/"]
    constraint = chat(guided_choice=texts).constraint
    assert isinstance(constraint, RegexConstraint)
    grammar = regex_to_grammar(constraint.pattern)
    for text in texts:
        assert matches(grammar, text)
    for text in ("a", "b", "xx", "x\\n", "zz", "q"):
        assert not matches(grammar, text)

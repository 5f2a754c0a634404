"""What a schema rules out is ruled out in every spelling: `"\\u0061"` is "a"."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from jan_serve.constraint.enforce import enforce
from jan_serve.core.constraint import JsonSchemaConstraint
from tests.conformance.uniqueness_oracle import UniquenessOracle

ORACLE = UniquenessOracle()
STRING = {"type": "string"}
# Each with texts that are invalid, and texts that are valid.
CASES: list[tuple[dict[str, Any], list[str], list[str]]] = [
    ({**STRING, "not": {"const": "a"}}, ['"a"', r'"\u0061"'], ['"b"', r'"\u0062"', '"ab"', '""']),
    (
        {**STRING, "not": {"enum": ["a", "foo/bar"]}},
        [r'"\u0061"', r'"foo\/bar"', r'"foo\u002Fbar"', r'"foo\u002fbar"', r'"f\u006fo/bar"', r'"f\u006Fo/bar"'],
        ['"b"', '"fo"'],
    ),
    ({**STRING, "not": {"const": "\n"}}, [r'"\n"', r'"\u000a"', r'"\u000A"'], [r'"\r"', r'"\n\n"']),
    ({**STRING, "not": {"const": '"\\'}}, [r'"\"\\"', r'"\u0022\\"', r'"\"\u005c"'], [r'"\""', r'"\\"']),
    ({**STRING, "not": {"const": "😀"}}, ['"😀"', r'"\ud83d\ude00"', r'"\uD83D\uDE00"'], ['"😁"', r'"\ud83d\ude01"']),
    ({**STRING, "not": {"pattern": "^a"}}, ['"ab"', r'"\u0061b"'], ['"ba"', r'"b\u0061"']),
    ({**STRING, "not": {"pattern": "\\s"}}, ['" "', r'"\u0020"', r'"\n"', r'"\u000a"'], ['"b"']),
    ({**STRING, "not": {"format": "date"}}, ['"2020-01-01"', r'"2020-01-0\u0031"'], ['"2020-01-0"']),
    ({**STRING, "not": {"minLength": 2, "pattern": "^a+$"}}, [r'"a\u0061"'], ['"a"', r'"\u0061"']),
    ({**STRING, "pattern": "^(?!foo)"}, ['"foo"', r'"\u0066oo"'], ['"fo"', r'"\u0067oo"']),
    ({**STRING, "pattern": "^(?!.*bar)"}, [r'"\u0062ar"', r'"xb\u0061r"'], ['"ba"']),
    ({**STRING, "minLength": 70, "not": {"pattern": "^a"}}, [f'"\\u0061{"a" * 69}"'], [f'"b{"a" * 69}"']),
    ({"oneOf": [{"const": "a"}, STRING]}, ['"a"', r'"\u0061"'], ['"b"']),
    (
        {"type": "array", "items": STRING, "contains": {"const": "a"}, "maxContains": 1},
        [r'["a","\u0061"]', '["b"]'],
        ['["a","b"]'],
    ),
    ({"not": {"const": {"a": "b"}}}, ['{"a":"b"}', r'{"a":"\u0062"}'], ['{"a":"c"}']),
    (
        {
            "properties": {"k": STRING, "z": STRING},
            "if": {"properties": {"k": {"const": "a"}}, "required": ["k"]},
            "then": {"required": ["z"]},
        },
        [r'{"k":"\u0061"}', '{"k":"a"}'],
        ['{"k":"b"}', '{"k":"a","z":""}'],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "invalid", "valid"), CASES)
def test_what_is_excluded_is_excluded_in_every_spelling(
    schema: dict[str, Any], invalid: list[str], valid: list[str]
) -> None:
    compiled = enforce(JsonSchemaConstraint(schema)).compiled()
    assert compiled.uniqueness is not None
    matcher = ORACLE.compile(compiled.lark, compiled.uniqueness)
    validator: Any = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    for texts, is_valid in ((invalid, False), (valid, True)):
        for text in texts:
            assert validator.is_valid(json.loads(text)) is is_valid, text
            assert ORACLE.accepts(matcher, text) is is_valid, text

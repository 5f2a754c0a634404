"""Meta-schemas: they agree with those of jsonschema on what a schema is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema.validators import validator_for

from jan_serve.constraint.enforce import enforce
from jan_serve.constraint.json_schema.keywords import DRAFTS
from jan_serve.core.constraint import JsonSchemaConstraint, PropertyOrder
from tests.conformance.uniqueness_oracle import UniquenessOracle
from tests.support.tables import table

ORACLE = UniquenessOracle()
URIS = [uri for uri, draft in DRAFTS.items() if draft >= 4]
SCHEMAS: list[Any] = table(__file__, "schemas")


@pytest.mark.parametrize("uri", URIS)
def test_schemas_are_what_the_draft_says(uri: str) -> None:
    compiled = enforce(JsonSchemaConstraint({"$ref": f"{uri}#"}, None, PropertyOrder.ANY)).compiled
    assert compiled.uniqueness is not None
    matcher = ORACLE.compile(compiled.lark, compiled.uniqueness)
    meta: Any = validator_for({"$schema": uri + ("#" if "draft-" in uri else "")}).META_SCHEMA
    kind: Any = validator_for(meta)
    for schema in SCHEMAS:
        valid = kind(meta).is_valid(schema)
        assert ORACLE.accepts(matcher, json.dumps(schema)) is valid, (uri, schema)


def test_a_part_of_a_meta_schema_may_be_named() -> None:
    schema = {"$ref": "http://json-schema.org/draft-04/schema#/properties/title"}
    compiled = enforce(JsonSchemaConstraint(schema)).compiled
    assert compiled.uniqueness is not None
    matcher = ORACLE.compile(compiled.lark, compiled.uniqueness)
    assert ORACLE.accepts(matcher, '"x"')
    assert not ORACLE.accepts(matcher, "1")

"""What the built-in model writes at a high temperature under drawn schemas, in both orders: a few answers by day, a
thousand with TEST_DRAWS=500."""

from __future__ import annotations

import os
import random
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

from jan_serve.core.constraint import PropertyOrder
from jan_serve.resources import builtin_model
from tests.conformance.generations import accepted, generate_all
from tests.integration.http.support import serving_models
from tests.support.drawn_grid import some

SCALARS: Final[tuple[dict[str, Any], ...]] = (
    {"type": "string"},
    {"type": "string", "minLength": 2, "maxLength": 12},
    {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{1,4}$"},
    {"type": "string", "pattern": "^(?:(?!aa)[a-c])+z$"},
    {"type": "string", "pattern": "^[β-ψ]{1,5}$"},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "email", "maxLength": 40},
    {"enum": ["red", "green", 3, None, 1.5, "a\nb"]},
    {"const": "ü"},
    {"type": "integer", "minimum": -5, "maximum": 1200},
    {"type": "number", "exclusiveMinimum": 0, "maximum": 9.75},
    {"type": "integer", "multipleOf": 6},
    {"type": "boolean"},
    {"type": ["null", "integer", "string"], "maxLength": 8},
)
NAMES: Final = ("id", "name", "na me", "größe", "items", "x", "kind", "values", 'q"uote')


def schema(draw: random.Random, depth: int = 3) -> dict[str, Any]:
    """A satisfiable schema with short values."""
    kind = draw.choice(["scalar", "scalar", "array", "object", "object", "union"] if depth else ["scalar"])
    if kind == "scalar":
        return draw.choice(SCALARS)
    if kind == "union":
        return {
            draw.choice(["anyOf", "oneOf"]): [schema(draw, depth - 1), {"type": "object", "maxProperties": 1}]
        }
    if kind == "array":
        unique = {"uniqueItems": True} if draw.random() < 0.3 else {}
        items = set_item(draw) if unique else schema(draw, depth - 1)
        return {"type": "array", "items": items, "minItems": draw.randrange(3), "maxItems": 4, **unique}
    names = draw.sample(NAMES, draw.randint(1, 5))
    closed: dict[str, Any] = draw.choice(
        [
            {"additionalProperties": False},
            {"additionalProperties": False, "patternProperties": {"^(id|idx)$": True}},
        ]
    )
    more: dict[str, Any] = (
        closed if draw.random() < 0.8 else {"additionalProperties": {"type": "boolean"}, "maxProperties": 7}
    )
    required = draw.sample(names, draw.randint(0, len(names)))
    return {
        "type": "object",
        "properties": {name: schema(draw, depth - 1) for name in names},
        "required": required,
        **more,
    }


def set_item(draw: random.Random) -> dict[str, Any]:
    """What a set holds: a scalar, a tuple, a closed object, or one of several of these."""
    kind = draw.choice(["scalar", "scalar", "tuple", "object", "union"])
    if kind == "scalar":
        return draw.choice(SCALARS[:6])
    if kind == "union":
        return {"anyOf": [closed(draw, "kind"), closed(draw, "id"), draw.choice(SCALARS)]}
    if kind == "object":
        return closed(draw, "name")
    parts = [*draw.choices(SCALARS, k=draw.randrange(3)), draw.choice(SCALARS[:2])]
    return {"type": "array", "prefixItems": parts, "items": False, "minItems": draw.choice([1, len(parts)])}


def closed(draw: random.Random, last: str) -> dict[str, Any]:
    """An object of listed properties only, one of which has endlessly many values."""
    others = {name: draw.choice(SCALARS) for name in draw.sample(("x", "größe", "values"), draw.randrange(3))}
    names = [*others, last]
    required = draw.sample(names, draw.randint(0, len(names)))
    properties = {**others, last: draw.choice([{"type": "string"}, {"type": "integer"}])}
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


COUNT: Final = int(os.environ.get("TEST_DRAWS", "6"))
"""A thousand answers: TEST_DRAWS=500."""

SCHEMAS: Final = [(f"drawn {seed}", schema(random.Random(seed))) for seed in range(507)]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    model = builtin_model()
    assert model is not None
    with serving_models(tmp_path_factory.mktemp("drawn"), Path(model), flags=("--n-ctx", "4096")) as server:
        yield server.url()


@pytest.mark.drawn
@pytest.mark.parametrize("order", [PropertyOrder.SCHEMA, PropertyOrder.ANY])
def test_every_answer_is_valid_or_the_beginning_of_a_valid_one(url: str, order: PropertyOrder) -> None:
    written = generate_all(url, accepted(some(SCHEMAS, COUNT, whole=False)), 1, 1.5, order)
    assert [answer for answer in written if answer.problem is not None] == []
    assert [answer.name for answer in written if answer.repeats] == []
    assert sum(answer.finished for answer in written) > len(written) // 2

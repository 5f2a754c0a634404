"""A few generations under schemas of our own; `generations.py` does it with the public ones."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from jan_serve.core.constraint import PropertyOrder
from tests.conformance.generations import accepted, generate_all
from tests.integration.http.support import serving_models
from tests.support.gguf.models import exact_llama as exact_llama
from tests.support.gguf.models import model_folder as model_folder
from tests.unit.constraint.json_schema.test_translate import CASES

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, exact_llama: Path) -> Generator[str]:
    with serving_models(
        tmp_path_factory.mktemp("generations"), exact_llama, flags=("--n-ctx", "4096")
    ) as server:
        yield server.url()


@pytest.mark.parametrize("order", PropertyOrder)
def test_random_weights_write_valid_json_under_every_schema_of_the_table(
    url: str, order: PropertyOrder
) -> None:
    schemas = accepted((case.name, case.schema) for case in CASES)
    written = generate_all(url, schemas, 1, 1.5, order)
    assert [answer for answer in written if answer.problem is not None] == []
    assert sum(answer.finished for answer in written) > len(schemas) // 2


def test_random_weights_repeat_no_unique_item(url: str) -> None:
    items: list[dict[str, Any]] = [
        {"type": "string", "pattern": "^[a-d]{1,2}$"},
        {"type": "integer", "minimum": 0, "maximum": 12},
        {"enum": [1, 1.5, "1", True, None, "a", "b", "c", "d", "ab"]},
    ]
    schemas = [
        (
            f"unique {number}",
            {"type": "array", "items": item, "uniqueItems": True, "minItems": 9, "maxItems": 10},
        )
        for number, item in enumerate(items)
    ]
    written = generate_all(url, schemas, 3)
    assert [answer for answer in written if answer.problem is not None] == []
    assert sum(answer.finished for answer in written) > 0

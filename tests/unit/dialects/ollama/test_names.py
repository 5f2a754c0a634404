"""Names as Ollama's clients know them."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.core.models.listed_model import ListedModel
from jan_serve.dialects.ollama.names import shown_names, tagged


def listed(name: str, **fields: Any) -> ListedModel:
    values: dict[str, Any] = {
        "aliases": (), "adapters": (), "source": "folder", "source_name": "", "size_bytes": 1, "modified_at": 1,
        "can_remove": True, "facts": None, "problem": None,
    }  # fmt: skip
    return ListedModel(name=name, **(values | fields))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a", "a:latest"), ("a:b", "a:b"), ("org/repo/file", "org/repo/file:latest"),
        ("host:5000/a", "host:5000/a:latest"), ("host:5000/a:b", "host:5000/a:b"),
    ],
)  # fmt: skip
def test_a_name_has_a_tag(name: str, expected: str) -> None:
    assert tagged(name) == expected


def test_all_names_of_a_model() -> None:
    assert shown_names(listed("a")) == ("a:latest",)
    model = listed("org/a", aliases=("qwen3-4b", "x:1b", "qwen3-4b"), adapters=("sql",), source="hub")
    assert shown_names(model) == ("org/a:latest", "qwen3-4b:latest", "x:1b", "org/a:sql")
    assert shown_names(listed("ollama/llama3-8b", aliases=("llama3:8b",), source="ollama")) == ("llama3:8b",)
    assert shown_names(listed("created/mine-1b", aliases=("mine:1b",), source="created")) == ("mine:1b",)

"""Lists of models in Anthropic's form, and their pages."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.core.models import HeaderFacts, ListedModel
from jan_serve.dialects.anthropic.model_pages import page
from jan_serve.dialects.anthropic.routes import aliases_of, find_info, model_infos
from jan_serve.errors import InvalidRequest

INFOS: list[Any] = [{"id": name} for name in "abcde"]


def listed(name: str, **fields: Any) -> ListedModel:
    facts = HeaderFacts(architecture="llama", n_ctx_train=4096)
    values: dict[str, Any] = {
        "name": name, "aliases": (), "adapters": (), "source": "folder", "source_name": "", "size_bytes": 1,
        "modified_at": 1_700_000_000, "can_remove": False, "facts": facts, "problem": None,
    }  # fmt: skip
    return ListedModel(**(values | fields))


def test_a_model_and_its_adapters() -> None:
    first, second = model_infos([listed("m", adapters=("x",))], [])
    assert first == {
        "type": "model", "id": "m", "display_name": "m", "created_at": "2023-11-14T22:13:20Z",
        "lifecycle": "active", "max_input_tokens": 4096, "max_tokens": 4096,
    }  # fmt: skip
    assert second == {**first, "id": "m:x", "display_name": "m:x"}


def test_claude_code_finds_the_names_that_it_accepts() -> None:
    """Its picker takes ids that begin with claude or anthropic alone; people see the model's name."""
    model = listed("m", aliases=("opus", "claude", "Claude-Sonnet", "anthropic.x", "my-claude"))
    shown = [(info["id"], info["display_name"]) for info in model_infos([model], [])]
    assert shown == [("m", "m"), ("claude", "m"), ("Claude-Sonnet", "m"), ("anthropic.x", "m")]


def test_aliases_mean_models_and_their_adapters() -> None:
    assert aliases_of([listed("m", aliases=("a", "b"), adapters=("x",)), listed("n")]) == {
        "a": "m", "a:x": "m:x", "b": "m", "b:x": "m:x",
    }  # fmt: skip


@pytest.mark.parametrize(("name", "found"), [("b", "b"), ("also", "b"), ("claude-opus-4", "c"), ("z", None)])
def test_a_model_is_found_by_name_alias_or_family(name: str, found: str | None) -> None:
    info = find_info(name, INFOS, {"also": "b", "opus": "c"})
    assert (info["id"] if info else None) == found


@pytest.mark.parametrize(
    ("limit", "after", "before", "ids", "more"),
    [
        (20, None, None, "abcde", False), (2, None, None, "ab", True), (2, "b", None, "cd", True),
        (2, "c", None, "de", False), (2, "e", None, "", False), (2, None, "d", "bc", True),
        (2, None, "c", "ab", False), (9, "a", "d", "bc", False),
    ],
)  # fmt: skip
def test_a_page(limit: int, after: str | None, before: str | None, ids: str, *, more: bool) -> None:
    found = page(INFOS, limit, after, before)
    assert "".join(info["id"] for info in found["data"]) == ids
    assert found["has_more"] is more
    assert (found["first_id"], found["last_id"]) == ((ids[0], ids[-1]) if ids else (None, None))


def test_an_unknown_place_is_rejected() -> None:
    with pytest.raises(InvalidRequest, match="after_id"):
        page(INFOS, 1, "z", None)

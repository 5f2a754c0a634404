"""Aliases in jan-serve's configuration file."""

from __future__ import annotations

import tomllib

import pytest

from jan_serve.editors.model_aliases import set_aliases

WANTED = ("opus", "haiku")


def test_a_new_file() -> None:
    assert tomllib.loads(set_aliases("", "org/a:Q4", WANTED)) == {
        "models": {"org/a:Q4": {"aliases": ["opus", "haiku"]}}
    }


def test_they_move_from_other_models_and_all_else_stays() -> None:
    text = """# mine
port = 1 # one

[models.a]
n_ctx = 8192  # enough
aliases = ["first"]

[models.b]
aliases = ["Opus", "other"]
"""
    changed = set_aliases(text, "a", WANTED)
    assert tomllib.loads(changed)["models"] == {
        "a": {"n_ctx": 8192, "aliases": ["first", "opus", "haiku"]},
        "b": {"aliases": ["other"]},
    }
    assert "# mine\nport = 1 # one\n" in changed
    assert "n_ctx = 8192  # enough" in changed
    assert set_aliases(changed, "a", WANTED) == changed


@pytest.mark.parametrize(
    "text", ["models = 3", "[models]\na = 3", '[models.a]\naliases = "x"', "[models.b]\naliases = [1]", "x ="]
)
def test_a_file_that_is_not_understood_is_rejected(text: str) -> None:
    with pytest.raises(ValueError):
        set_aliases(text, "a", WANTED)

"""Values, tables and aliases in a TOML text."""

from __future__ import annotations

import tomllib

import pytest

from jan_serve.editors.toml_file import set_aliases, set_table, set_values

CODEX = """\
# codex
model = "gpt-5"   # the default

[model_providers.other] # mine
base_url = "https://x"

[projects."/home/ada"]
trust_level = "trusted"
"""


def test_tables_of_codex() -> None:
    values = {"name": "jan-serve", "base_url": "u"}
    new = set_table(CODEX, ("model_providers", "jan-serve"), values)
    expected = tomllib.loads(CODEX)
    expected["model_providers"]["jan-serve"] = values
    assert tomllib.loads(new) == expected
    for line in CODEX.splitlines():
        assert line in new.splitlines()
    assert set_table(new, ("model_providers", "jan-serve"), values) == new
    changed = set_table(new, ("model_providers", "jan-serve"), {"base_url": "v"})
    assert tomllib.loads(changed)["model_providers"]["jan-serve"] == {"base_url": "v"}
    assert set_table("", ("a", "b"), {"c": 1}) == "[a.b]\nc = 1\n"


@pytest.mark.parametrize(("text", "words"), [("a = ", "line 1"), ("model_providers = 1", "not a table")])
def test_toml_that_cannot_be_changed(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        set_table(text, ("model_providers", "jan-serve"), {})


def test_values_come_before_tables() -> None:
    values = {"model": "m", "model_context_window": 8192}
    new = set_values(CODEX, values)
    assert tomllib.loads(new) == {**tomllib.loads(CODEX), **values}
    assert set_values(new, values) == new
    assert set_values("", {"a": 1}) == "a = 1\n"
    with pytest.raises(ValueError, match="line 1"):
        set_values("a = ", values)


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

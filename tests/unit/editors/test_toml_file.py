"""Values set in TOML: comments and the user's own entries stay."""

from __future__ import annotations

import tomllib

import pytest

from jan_serve.editors.toml_file import set_table, set_values

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

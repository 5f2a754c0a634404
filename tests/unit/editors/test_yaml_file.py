"""Values set in YAML: comments and the user's own entries stay."""

from __future__ import annotations

import pytest
import yaml

from jan_serve.editors.yaml_file import set_keys, set_models

CONTINUE = """\
# my assistant
name: Mine
version: 0.0.1
schema: v1
models:
# the big one
- name: "GPT"  # paid
  provider: openai
  model: gpt-4o
- name: jan-serve old
  provider: openai
rules:
- Be brief
"""


def test_models_of_continue() -> None:
    entries = [{"name": "jan-serve a", "provider": "openai", "model": "a"}]
    new = set_models(CONTINUE, entries, prefix="jan-serve ")
    assert new == CONTINUE.replace(
        "- name: jan-serve old\n  provider: openai\n",
        "- name: jan-serve a\n  provider: openai\n  model: a\n",
    )
    assert set_models(new, entries, prefix="jan-serve ") == new


def test_indented_lists_stay_indented() -> None:
    text = "models:\n    - name: x\n      model: y\nother: [1, 2]\n"
    new = set_models(text, [{"name": "jan-serve a"}], prefix="jan-serve ")
    assert new == "models:\n    - name: x\n      model: y\n    - name: jan-serve a\nother: [1, 2]\n"


def test_a_new_file_of_continue() -> None:
    content = yaml.safe_load(set_models("", [{"name": "jan-serve a"}], prefix="jan-serve "))
    assert content == {
        "name": "Local Config",
        "version": "1.0.0",
        "schema": "v1",
        "models": [{"name": "jan-serve a"}],
    }


def test_keys_of_aider() -> None:
    text = "# aider\nmodel: gpt  # was good\ndark-mode: true\n"
    new = set_keys(text, {"model": "openai/a", "openai-api-base": "u"})
    assert new == "# aider\nmodel: openai/a # was good\ndark-mode: true\nopenai-api-base: u\n"
    assert set_keys(new, {"model": "openai/a"}) == new
    assert set_keys("", {"model": "a"}) == "model: a\n"
    assert set_keys("# only a comment\n", {"model": "a"}) == "# only a comment\nmodel: a\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [("- a\n", "not a mapping"), ("a: [1\n", "line"), ("models: 1\n", "not a list"), ("a: b: c\n", "line 1")],
)
def test_yaml_that_cannot_be_changed(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        set_models(text, [{"name": "jan-serve a"}], prefix="jan-serve ")


def test_yaml_makes_no_objects() -> None:
    text = "a: !!python/object/apply:os.getcwd []\n"
    assert "python/object" in set_keys(text, {"b": 1})


@pytest.mark.parametrize("text", ["[" * 20_000, "a: " + "{a: " * 100 + "1" + "}" * 100, "- " * 1000])
def test_yaml_that_nests_deep_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="more than 50 levels"):
        set_keys(text, {"openai-api-base": "x"})


def test_yaml_of_an_ordinary_depth_is_written() -> None:
    text = "a: " + "{a: " * 48 + "1" + "}" * 48 + "\n"
    assert set_keys(text, {"b": 1}) == text + "b: 1\n"

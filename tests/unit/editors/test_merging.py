"""Values are set in JSON with comments, TOML and YAML, and all else stays."""

from __future__ import annotations

import json
import tomllib
from typing import Any, cast

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.editors.merging import (
    Named,
    Step,
    UnreadableJson,
    read_value,
    set_aliases,
    set_keys,
    set_models,
    set_provider,
    set_table,
    set_value,
    set_values,
)

SETTINGS = """\
// Zed settings
{
    "theme": "One", /* dark */
    // what models there are
    "language_models": {
        "ollama": { "api_url": "http://localhost:11434" }, // mine
    },
    "tab_size": 2
}
"""
MERGED = """\
// Zed settings
{
    "theme": "One", /* dark */
    // what models there are
    "language_models": {
        "ollama": { "api_url": "http://localhost:11434" }, // mine
        "openai_compatible": {
            "jan-serve": {
                "api_url": "u"
            }
        },
    },
    "tab_size": 2
}
"""


def test_comments_around_a_new_object_stay() -> None:
    path = ("language_models", "openai_compatible", "jan-serve")
    assert set_value(SETTINGS, path, {"api_url": "u"}) == MERGED
    assert set_value(MERGED, path, {"api_url": "u"}) == MERGED
    changed = set_value(MERGED, path, {"api_url": "v"})
    assert changed == MERGED.replace('"u"', '"v"')


@pytest.mark.parametrize(
    ("text", "path", "merged"),
    [
        ("", ("a",), '{\n  "a": 1\n}\n'),
        ("\n", ("a", "b"), '{\n  "a": {\n    "b": 1\n  }\n}\n'),
        ("// nothing yet\n", ("a",), '// nothing yet\n{\n  "a": 1\n}\n'),
        ("{}", ("a",), '{\n  "a": 1\n}'),
        ("{ // empty\n}", ("a",), '{ // empty\n  "a": 1\n}'),
        ('{"a": 0}', ("a",), '{"a": 1}'),
        ('{"a": 0} // end', ("b",), '{"a": 0,\n  "b": 1\n} // end'),
        ('{\n\t"a": 0 // last\n}\n', ("b",), '{\n\t"a": 0, // last\n\t"b": 1\n}\n'),
        ('{\n  "x": [1, 2,],\n}', ("b",), '{\n  "x": [1, 2,],\n  "b": 1,\n}'),
        ('{"url": "http://a//b,}"}', ("b",), '{"url": "http://a//b,}",\n  "b": 1\n}'),
        (
            '{ // "a": 1, {\n  "b": "//,]", /* , " */\n}',
            ("a",),
            '{ // "a": 1, {\n  "b": "//,]", /* , " */\n  "a": 1,\n}',
        ),
        ("", (Named("name", "j"),), "[\n  1\n]\n"),
        ('[\n  {"name": "j"},\n  {"name": "k"}\n]', (Named("name", "j"), "v"), None),
    ],
)
def test_a_value_is_inserted_or_replaced(text: str, path: tuple[Step, ...], merged: str | None) -> None:
    new = set_value(text, path, 1)
    if merged is not None:
        assert new == merged
    assert set_value(new, path, 1) == new or path == (Named("name", "j"),)


def test_a_list_element_is_replaced_or_appended() -> None:
    text = '[\n  {"name": "other", "x": 1},\n  {"name": "jan-serve", "x": 2}\n]\n'
    new = set_value(text, (Named("name", "jan-serve"),), {"name": "jan-serve", "x": 3})
    assert read_value(new) == [{"name": "other", "x": 1}, {"name": "jan-serve", "x": 3}]
    assert new.startswith('[\n  {"name": "other", "x": 1},\n')
    added = set_value("[\n  1\n]", (Named("name", "a"),), {"name": "a"})
    assert added == '[\n  1,\n  {\n    "name": "a"\n  }\n]'


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("{", ("a",), "line 1"),
        ('{"a": 1 "b": 2}', ("a",), "',' delimiter"),
        ('{\n"a": nope}', ("a",), "line 2"),
        ("{} {}", ("a",), "Extra data"),
        ('{"a": [1]}', ("a", "b"), "the value of a is not an object"),
        ("[]", ("a",), "the whole is not an object"),
        ("{}", (Named("name", "x"),), "the whole is not a list"),
        ("[" * 200_000, ("a",), "levels"),
        ('{"a": "\x00"}', ("a",), "control character"),
        ("{1: 2}", ("a",), "property name"),
        ("1" * 5000, ("a",), "digits"),
    ],
)
def test_unreadable_text_is_rejected(text: str, path: tuple[Step, ...], words: str) -> None:
    with pytest.raises(UnreadableJson, match=words):
        set_value(text, path, 1)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(
    before=st.dictionaries(st.text(max_size=3), json_values, max_size=4),
    path=st.lists(st.text(max_size=3), min_size=1, max_size=3),
    value=json_values,
    indent=st.sampled_from([None, 1, 2, 4, "\t"]),
)
def test_the_value_is_set_and_everything_else_stays(
    before: dict[str, Any], path: list[str], value: Any, indent: int | str | None
) -> None:
    expected: dict[str, Any] = json.loads(json.dumps(before))
    node = expected
    for key in path[:-1]:
        child: Any = node.setdefault(key, {})
        if not isinstance(child, dict):
            return
        node = cast(dict[str, Any], child)
    node[path[-1]] = value
    merged = set_value(json.dumps(before, indent=indent), path, value)
    assert json.loads(merged) == expected
    assert set_value(merged, path, value) == merged


OURS = {"provider": "openai-compatible", "model": "m", "baseUrl": "http://127.0.0.1:1337/v1"}
TIME = "2026-01-02T03:04:05.000Z"


def file(**settings: Any) -> str:
    """As Cline writes it, with a provider beside."""
    providers: dict[str, Any] = {
        "anthropic": {"settings": {"provider": "anthropic", "apiKey": "sk-a"}, "updatedAt": TIME}
    }
    if settings:
        entry = {"settings": {"provider": "openai-compatible", **settings}, "updatedAt": TIME}
        providers["openai-compatible"] = {**entry, "tokenSource": "manual"}
    document = {"version": 1, "lastUsedProvider": "anthropic", "modes": {}, "providers": providers}
    return json.dumps(document, indent=2) + "\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, OURS),
        ({"baseUrl": "http://127.0.0.1:9/v1", "apiKey": "none", "model": "x"}, OURS),
        (
            {"baseUrl": OURS["baseUrl"], "apiKey": "our-key", "timeout": 9, "model": "x"},
            {**OURS, "apiKey": "our-key", "timeout": 9},
        ),
    ],
    ids=["new", "another address", "the same address"],
)
def test_the_provider_is_set_and_all_else_stays(before: dict[str, Any], after: dict[str, Any]) -> None:
    text = file(**before)
    new = set_provider(text, OURS)
    expected = json.loads(text)
    merged = json.loads(new)
    entry = merged["providers"].pop("openai-compatible")
    expected["providers"].pop("openai-compatible", None)
    assert merged == expected
    assert entry["settings"] == after
    assert entry["updatedAt"] == (TIME if before else "1970-01-01T00:00:00.000Z")
    assert set_provider(new, OURS) == new


def test_a_key_for_another_address_is_not_lost() -> None:
    text = file(baseUrl="https://paid.example/v1", apiKey="sk-paid")
    with pytest.raises(ValueError, match=r"a key for https://paid\.example/v1") as caught:
        set_provider(text, OURS)
    assert "sk-paid" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"), [("[]", "not of version 1"), ('{"version": 2}', "not of version 1"), ("{", "line 1")]
)
def test_other_files_are_rejected(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        set_provider(text, OURS)


def test_malformed_providers_are_rejected() -> None:
    with pytest.raises(ValueError, match="not an object"):
        set_provider('{"version": 1, "providers": []}', OURS)


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
        "- name: jan-serve old\n  provider: openai\n", "- name: jan-serve a\n  provider: openai\n  model: a\n"
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

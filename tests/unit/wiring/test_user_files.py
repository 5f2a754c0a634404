"""Grammars, schemas and templates of the user."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from jan_serve.errors import InvalidGrammar, SettingsError, TemplateError
from jan_serve.generation.profiles import BUILT_IN, TemplateOverride, template_of
from jan_serve.wiring.user_files import (
    MAX_FILE_BYTES,
    GrammarFiles,
    SchemaFiles,
    TemplateFiles,
    read_template,
)
from tests.support.engine.fake_client import fake_facts

SHIPPED = {"json": 'root ::= "{}"', "list": 'root ::= "-"'}


def test_a_file_of_the_user_comes_first_and_counts_at_once(tmp_path: Path) -> None:
    grammars = GrammarFiles(SHIPPED, tmp_path / "grammars")
    assert grammars["json"] == SHIPPED["json"]
    (tmp_path / "grammars").mkdir()
    own = tmp_path / "grammars" / "json.gbnf"
    own.write_text('root ::= "mine é"', encoding="utf-8")
    assert grammars["json"] == 'root ::= "mine é"'
    own.write_text('root ::= "edited"', encoding="utf-8")
    assert grammars["json"] == 'root ::= "edited"'
    own.rename(own.with_stem("other"))
    assert list(grammars) == ["other", "json", "list"]
    assert len(grammars) == 3


@pytest.mark.parametrize(
    "name", ["", "no", "../json", "a/b", "json.gbnf", 'root ::= "a"', "x" * 65, ".hidden"]
)
def test_invalid_names_are_not_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "json.gbnf").write_text("x", encoding="utf-8")
    grammars = GrammarFiles(SHIPPED, tmp_path / "grammars")
    assert name not in grammars
    with pytest.raises(KeyError):
        grammars[name]


def test_files_that_cannot_be_used_say_why(tmp_path: Path) -> None:
    grammars = GrammarFiles(SHIPPED, tmp_path)
    (tmp_path / "long.gbnf").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    (tmp_path / "bytes.gbnf").write_bytes(b"\xff")
    (tmp_path / "folder.gbnf").mkdir()
    for name in ("long", "bytes", "folder"):
        with pytest.raises(InvalidGrammar, match=name):
            grammars[name]


def test_schemas_are_read_by_identifier_and_by_path_and_again_after_an_edit(tmp_path: Path) -> None:
    folder = tmp_path / "grammars"
    files = SchemaFiles(folder)
    assert files.read() == {}
    (folder / "in").mkdir(parents=True)
    named, plain = {"$id": "https://example.com/a#", "type": "null"}, {"type": "string"}
    (folder / "a.json").write_text(json.dumps(named), encoding="utf-8")
    (folder / "in" / "b.json").write_text(json.dumps(plain), encoding="utf-8")
    (folder / "list.gbnf").write_text("root ::= []", encoding="utf-8")
    assert files.read() == {"a.json": named, "https://example.com/a": named, "in/b.json": plain}
    assert files.read() is files.read()
    (folder / "a.json").unlink()
    (folder / "in" / "b.json").write_text("{ }", encoding="utf-8")
    assert files.read() == {"in/b.json": {}}


def test_a_file_that_cannot_be_used_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    (tmp_path / "list.json").write_text("[]", encoding="utf-8")
    (tmp_path / "long.json").write_bytes(b" " * (MAX_FILE_BYTES + 1))
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "link.json").symlink_to(tmp_path / "nowhere")
    (tmp_path / "good.json").write_text("{}", encoding="utf-8")
    files = SchemaFiles(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert files.read() == {"good.json": {}}
        assert files.read() == {"good.json": {}}
    named = [message for message in caplog.messages if "is not used" in message]
    assert len(named) == 4
    assert all(any(name in text for text in named) for name in ("broken", "list", "long", "folder"))
    assert any(text.endswith(f"is not used: longer than {MAX_FILE_BYTES} bytes") for text in named)


OWN = {"default": "own", "tool_use": "with tools"}


def test_files_and_names(tmp_path: Path) -> None:
    file = tmp_path / "my.jinja"
    file.write_text("{{ é }}", encoding="utf-8")
    templates = TemplateFiles()
    assert templates.get(str(file)) == TemplateOverride("my.jinja", "{{ é }}")
    assert templates.get("tool_use") == TemplateOverride("tool_use")
    assert templates.get(str(file)) is templates.get(str(file))


def test_a_file_may_be_edited(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "my.jinja"
    file.write_text("one")
    templates = TemplateFiles()
    assert templates.get(str(file)).source == "one"
    file.write_text("two")
    os.utime(file, ns=(7, 7))
    assert templates.get(str(file)).source == "two"
    file.unlink()
    assert [templates.get(str(file)).source for _ in range(2)] == ["two", "two"]
    assert caplog.text.count("is unchanged") == 1
    with pytest.raises(SettingsError, match="cannot be read"):
        TemplateFiles().get(str(file))


def test_files_that_are_no_templates(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    (tmp_path / "bytes").write_bytes(b"\xff")
    for name in ("long", "bytes", "absent"):
        with pytest.raises(SettingsError, match=name):
            read_template(tmp_path / name)


def test_which_template_a_model_is_asked_with() -> None:
    facts = fake_facts(chat_templates=OWN)
    assert template_of("m", facts.chat_templates, None, with_tools=False) == "own"
    assert template_of("m", facts.chat_templates, None, with_tools=True) == "with tools"
    assert template_of("m", facts.chat_templates, TemplateOverride("x", "y"), with_tools=True) == "y"
    assert (
        template_of("m", facts.chat_templates, TemplateOverride("tool_use"), with_tools=False) == "with tools"
    )
    assert (
        template_of("m", facts.chat_templates, TemplateOverride("chatml"), with_tools=False)
        == BUILT_IN["chatml"]
    )
    with pytest.raises(TemplateError, match="chatml, default, tool_use"):
        template_of("m", facts.chat_templates, TemplateOverride("none"), with_tools=False)

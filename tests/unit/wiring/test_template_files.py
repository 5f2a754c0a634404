from __future__ import annotations

import os
from pathlib import Path

import pytest

from jan_serve.errors import SettingsError, TemplateError
from jan_serve.generation.template_choice import BUILT_IN, TemplateOverride, template_of
from jan_serve.wiring.template_files import MAX_FILE_BYTES, TemplateFiles, read_template
from tests.support.fake_client import fake_facts

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

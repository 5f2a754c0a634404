from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.chosen_templates import MAX_FILE_BYTES, chosen_templates
from jan_serve.errors import SettingsError, TemplateError
from jan_serve.generation.template_choice import BUILT_IN, TemplateOverride, template_of
from tests.support.fake_client import fake_facts

OWN = {"default": "own", "tool_use": "with tools"}


def test_files_and_names(tmp_path: Path) -> None:
    file = tmp_path / "my.jinja"
    file.write_text("{{ é }}", encoding="utf-8")
    assert chosen_templates([f"a={file}", "b=tool_use", "c=x=y"]) == {
        "a": TemplateOverride("my.jinja", "{{ é }}"),
        "b": TemplateOverride("tool_use"),
        "c": TemplateOverride("x=y"),
    }


@pytest.mark.parametrize("setting", ["a", "a=", "=x", "a=/no/such/file", "a=missing.jinja"])
def test_what_cannot_be_used_is_refused(setting: str) -> None:
    with pytest.raises(SettingsError, match="chat_template"):
        chosen_templates([setting])


def test_files_that_are_no_templates(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    (tmp_path / "bytes").write_bytes(b"\xff")
    for name in ("long", "bytes"):
        with pytest.raises(SettingsError, match=name):
            chosen_templates([f"a={tmp_path / name}"])


def test_which_template_a_model_is_asked_with() -> None:
    facts = fake_facts(chat_templates=OWN)
    assert template_of("m", facts, {}, with_tools=False) == "own"
    assert template_of("m", facts, {}, with_tools=True) == "with tools"
    assert template_of("m", facts, {"other": TemplateOverride("x", "y")}, with_tools=False) == "own"
    assert template_of("m", facts, {"m": TemplateOverride("x", "y")}, with_tools=True) == "y"
    assert template_of("m", facts, {"m": TemplateOverride("tool_use")}, with_tools=False) == "with tools"
    assert template_of("m", facts, {"m": TemplateOverride("chatml")}, with_tools=False) == BUILT_IN["chatml"]
    with pytest.raises(TemplateError, match="chatml, default, tool_use"):
        template_of("m", facts, {"m": TemplateOverride("none")}, with_tools=False)

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from jan_serve.wiring.schema_files import MAX_FILE_BYTES, SchemaFiles


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

"""Settings of models follow the file."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from jan_serve.config import ModelBook, load_settings
from jan_serve.config.model_settings import ModelSettings


def rewrite(path: Path, text: str) -> None:
    """Write the file and give it a time of change of its own, however fast the test is."""
    before = path.stat().st_mtime_ns
    path.write_text(text)
    os.utime(path, ns=(before + 1_000_000_000, before + 1_000_000_000))


def test_the_book_follows_the_file(config_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    config_file.write_text("n_ctx = 128\n[models.a]\nparallel = 2\n")
    book = load_settings().book()
    before = book.tables()
    assert book.tables() is before and book.common().n_ctx == 128
    rewrite(config_file, "n_ctx = 128\n[models.a]\nparallel = 4\npin = true\n[models.b]\ngroup = 'g'\n")
    tables = book.tables()
    assert (tables["a"].options.parallel, tables["a"].options.n_ctx, tables["a"].pin) == (4, 128, True)
    assert tables["b"].group == "g"
    assert "models.a changed: pin; they apply from the next request" in caplog.text
    assert "models.a changed: parallel; they apply when the model is reloaded" in caplog.text
    assert "top level" not in caplog.text


def test_a_new_table_changes_only_its_own_keys(config_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    config_file.write_text("n_ctx = 128\n")
    book = load_settings().book()
    rewrite(config_file, "n_ctx = 128\n[models.a]\naliases = ['x']\n")
    assert book.tables()["a"].aliases == ("x",)
    rewrite(config_file, "n_ctx = 128\n")
    assert book.tables() == {}
    assert [record.message for record in caplog.records] == 2 * [
        "settings of models.a changed: aliases; they apply from the next request"
    ]


def test_a_file_that_was_not_there_is_read(config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config_file.unlink()
    monkeypatch.delenv("JAN_SERVE_CONFIG")
    monkeypatch.setattr("jan_serve.config.settings_loader.default_config_file", lambda: config_file)
    book = load_settings().book()
    assert book.tables() == {}
    config_file.write_text("[models.a]\naliases = ['x']\n")
    assert book.tables()["a"].aliases == ("x",)


def test_a_mistake_leaves_the_book_as_it_was(config_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    config_file.write_text("[models.a]\nparallel = 2\n")
    book = load_settings().book()
    for text in ("[models.a]\nparallel = 0\n", "[models.a\n"):
        rewrite(config_file, text)
        assert book.tables()["a"].options.parallel == 2
    assert len(caplog.records) == 2 and f"{config_file}:2: models.a.parallel" in caplog.text
    book.tables()
    assert len(caplog.records) == 2
    rewrite(config_file, "port = 3\n")
    assert book.tables() == {}
    assert "top level changed; they apply after a restart" in caplog.text
    config_file.unlink()
    assert book.tables() == {}


def test_a_book_without_a_file(config_file: Path) -> None:
    settings = load_settings().settings
    assert ModelBook(settings).tables() == {}
    table = ModelSettings(options=settings)
    assert ModelBook(settings, {"m": table}).tables() == {"m": table}

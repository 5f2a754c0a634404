"""Models that are served from another file than their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.errors import ModelNotFound
from jan_serve.supervisor.models.updated_sources import UpdatedSources
from tests.support.engines import FakeResolver


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        (tmp_path / f"{name}.gguf").write_bytes(b"old")
    return tmp_path


def test_an_update_is_another_file_and_revision_until_it_is_taken_back(folder: Path) -> None:
    sources = UpdatedSources(FakeResolver(folder, ("a", "b")))
    own = sources.resolve("a")
    sources.update(own, "/updated-1", 1)
    first = sources.resolve("a")
    assert (first.path, first.name) == ("/updated-1", "a")
    assert first.revision != own.revision
    assert sources.resolve("b").path == str(folder / "b.gguf")
    assert sources.original("a") == own
    assert {source.path for source in sources.list()} == {"/updated-1", str(folder / "b.gguf")}
    sources.update(own, "/updated-2", 2)
    assert sources.resolve("a").revision not in (own.revision, first.revision)
    sources.restore("a", "/updated-1", 1)
    assert sources.resolve(None) == first
    sources.restore("a", None, 0)
    assert sources.resolve("a") == own
    sources.restore("a", "/updated-1", 1)
    assert sources.resolve("a") == own, "there is no update to take back"


def test_a_file_that_is_replaced_is_newer_than_the_update(folder: Path) -> None:
    resolver = FakeResolver(folder, ("a", "b"))
    sources = UpdatedSources(resolver)
    sources.update(sources.resolve("a"), "/updated-1", 1)
    resolver.change_file("a")
    assert sources.resolve("a").path == "/updated-1", "settings changed, the file did not"
    (folder / "a.gguf").write_bytes(b"newer")
    assert sources.resolve("a").path == str(folder / "a.gguf")
    (folder / "a.gguf").write_bytes(b"old")
    assert sources.resolve("a").path == str(folder / "a.gguf")


def test_unknown_names_stay_unknown(folder: Path) -> None:
    with pytest.raises(ModelNotFound):
        UpdatedSources(FakeResolver(folder, ("a",))).resolve("c")

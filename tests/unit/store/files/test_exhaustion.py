"""A server without free descriptors says so: it does not deny that files are there, and forgets nothing of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from jan_serve.core.models.variant import Variant
from jan_serve.errors import JanServeError, Unavailable
from jan_serve.store.gguf.gguf_header import read_gguf_header
from jan_serve.store.index import FileRecord, ModelIndex, ModelRecord, Source
from jan_serve.store.resolve import ModelResolver
from jan_serve.store.variants import VariantIndex
from jan_serve.wiring.grammar_files import GrammarFiles
from jan_serve.wiring.template_files import read_template
from tests.unit.store.gguf_builder import GgufBytes

if sys.platform == "win32":
    pytest.skip("limits descriptors", allow_module_level=True)

from tests.support.descriptors import no_descriptors

RECORD = ModelRecord(
    name="m",
    source=Source(kind="hub", name="org/repo", revision="0" * 40),
    files=(FileRecord(path="m.gguf", size_bytes=7, sha256="0" * 64),),
    projector=None,
    modified_ns=5,
    added_at=1.5,
    aliases=("m",),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m.gguf").write_bytes(GgufBytes().build())
    (tmp_path / "g.gbnf").write_text('root ::= "a"', encoding="utf-8")
    ModelIndex(tmp_path).put(RECORD)
    VariantIndex(tmp_path).put(Variant(name="mario", base="m", created_at=1.5, system="Be Mario."))
    return tmp_path


READS: dict[str, Callable[[Path], object]] = {
    "a list of models": lambda folder: ModelResolver(folder).entries(),
    "a model by name": lambda folder: ModelResolver(folder).resolve("m"),
    "a header": lambda folder: read_gguf_header(folder / "m.gguf"),
    "records": lambda folder: ModelIndex(folder).records(),
    "variants": lambda folder: VariantIndex(folder).all(),
    "a grammar": lambda folder: GrammarFiles({}, folder)["g"],
    "a template": lambda folder: read_template(folder / "g.gbnf"),
}


@pytest.mark.parametrize("what", READS)
def test_what_cannot_be_opened_now_is_not_called_missing_or_damaged(folder: Path, what: str) -> None:
    with no_descriptors(), pytest.raises(Unavailable) as caught:
        READS[what](folder)
    assert "cannot open more files now" in caught.value.message


def test_nothing_is_forgotten(folder: Path) -> None:
    """A record or variant that could not be read once is read again, though its file has not changed."""
    index, variants = ModelIndex(folder), VariantIndex(folder)
    resolver = ModelResolver(folder, index=index, variants=variants)
    index.put(msgspec.structs.replace(RECORD, name="other"))
    for _ in range(2):
        with no_descriptors(), pytest.raises(JanServeError):
            resolver.entries()
    assert set(index.records()) == {"m", "other"}
    assert [variant.name for variant in variants.all()] == ["mario"]
    assert resolver.resolve("mario").name == "m"

"""Records: written whole, read one by one, and worth nothing when they are damaged or out of date."""

from __future__ import annotations

from pathlib import Path

import msgspec

from jan_serve.core.models import HeaderFacts
from jan_serve.store.index import FileRecord, ModelIndex, ModelRecord, Source

RECORD = ModelRecord(
    name="org/repo/m-Q8_0",
    source=Source(kind="hub", name="org/repo", revision="0" * 40),
    files=(FileRecord(path="org/repo/m-Q8_0.gguf", size_bytes=7, sha256="0" * 64),),
    projector=FileRecord(path="org/repo/mmproj.gguf", size_bytes=3),
    modified_ns=5,
    added_at=1.5,
    aliases=("m",),
    facts=HeaderFacts(architecture="llama", n_ctx_train=2048, n_parameters=9),
)


def folder(models: Path) -> Path:
    return models / ".jan-serve" / "index"


def test_a_record_is_visible_to_another_reader(tmp_path: Path) -> None:
    index = ModelIndex(tmp_path)
    assert index.records() == {}
    index.put(RECORD)
    assert index.records() == {RECORD.name: RECORD}
    changed = msgspec.structs.replace(RECORD, aliases=("other",))
    ModelIndex(tmp_path).put(changed)
    assert index.records() == {RECORD.name: changed}
    index.remove(RECORD.name)
    index.remove("never there")
    assert index.records() == {}


def test_a_record_under_the_name_of_another_does_not_count(tmp_path: Path) -> None:
    index = ModelIndex(tmp_path)
    index.put(RECORD)
    (path,) = folder(tmp_path).iterdir()
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(RECORD, name="someone/else")))
    assert index.records() == {}


def test_describes() -> None:
    assert RECORD.describes(7, 5)
    assert not RECORD.describes(8, 5)
    assert not RECORD.describes(7, 6)

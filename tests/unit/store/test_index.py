"""Records of models, and variants."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from jan_serve.core.models import HeaderFacts, Variant, VariantMessage
from jan_serve.errors import ModelNotFound
from jan_serve.store.index import FileRecord, ModelIndex, ModelRecord, Source, VariantIndex
from jan_serve.store.resolve import ModelResolver
from tests.support.servers.managed import add_model

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


MARIO = Variant(
    name="Mario:7b",
    base="org/chat",
    created_at=1.5,
    system="Be Mario.",
    messages=(VariantMessage("user", "Who?"),),
    defaults={"temperature": 0.0, "stop": ["Z"]},
    parameters={"temperature": 0},
)


def test_a_variant_survives_a_restart(tmp_path: Path) -> None:
    index = VariantIndex(tmp_path)
    assert (index.all(), index.get("mario:7b")) == ((), None)
    index.put(MARIO)
    for each in (index, VariantIndex(tmp_path)):
        assert each.all() == (MARIO,)
        assert each.get("MARIO:7B") == MARIO
        assert each.get("mario") is None
    newer = msgspec.structs.replace(MARIO, name="mario:7B", system="New.")
    VariantIndex(tmp_path).put(newer)
    assert index.all() == (newer,)
    index.remove("mario:7b")
    index.remove("mario:7b")
    assert index.all() == ()


def test_the_tag_latest_is_no_difference(tmp_path: Path) -> None:
    index = VariantIndex(tmp_path)
    index.put(msgspec.structs.replace(MARIO, name="mario"))
    assert index.get("mario:latest") is not None
    index.put(msgspec.structs.replace(MARIO, name="mario:latest"))
    assert len(index.all()) == 1


def test_a_variant_means_its_model(tmp_path: Path) -> None:
    add_model(tmp_path, "org/chat")
    add_model(tmp_path, "other")
    variants = VariantIndex(tmp_path)
    resolver = ModelResolver(tmp_path)
    variants.put(MARIO)
    for name in ("Mario:7b", "mario:7B"):
        assert resolver.resolve(name).name == "org/chat"
        assert resolver.variants.get(name) == MARIO
    assert resolver.variants.get("org/chat") is None
    with pytest.raises(ModelNotFound):
        resolver.resolve_exact("mario:7b")
    os.unlink(tmp_path / "org" / "chat.gguf")
    with pytest.raises(ModelNotFound):
        resolver.resolve("mario:7b")

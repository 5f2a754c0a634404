"""Named variants on the disk: names, damage, and what the resolver makes of them."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from jan_serve.core.models import Variant, VariantMessage
from jan_serve.errors import ModelNotFound
from jan_serve.store.resolve import ModelResolver
from jan_serve.store.variants import VariantIndex
from tests.support.managed import add_model

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
    resolver = ModelResolver(tmp_path, variants=variants)
    variants.put(MARIO)
    for name in ("Mario:7b", "mario:7B"):
        assert resolver.resolve(name).name == "org/chat"
        assert resolver.variant_finder()(name) == MARIO
    assert resolver.variant_finder()("org/chat") is None
    with pytest.raises(ModelNotFound):
        resolver.resolve_exact("mario:7b")
    os.unlink(tmp_path / "org" / "chat.gguf")
    with pytest.raises(ModelNotFound):
        resolver.resolve("mario:7b")

"""Names of the files of split models."""

from __future__ import annotations

from jan_serve.core.split_names import PartName


def test_names_of_parts() -> None:
    assert PartName.parse("a-b-00002-of-00005.gguf") == PartName("a-b", 2, 5)
    assert PartName("a", 1, 2).all_files() == ["a-00001-of-00002.gguf", "a-00002-of-00002.gguf"]
    assert PartName.parse("a-b.gguf") is None
    assert PartName.parse("-00001-of-00002.gguf") is None

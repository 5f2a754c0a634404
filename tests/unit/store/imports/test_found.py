"""Which files make a model."""

from __future__ import annotations

from pathlib import Path

from jan_serve.store.imports.finders import find
from tests.unit.store.imports.support import MODEL, write


def test_a_name_of_part_one_of_none_stops_no_finder(tmp_path: Path) -> None:
    name = "m-00001-of-00000.gguf"
    write(tmp_path / "lm" / "p" / "r" / name, MODEL)
    assert find("lmstudio", [tmp_path / "lm"]) == []
    write(tmp_path / "jan" / "elsewhere" / name, MODEL)
    write(tmp_path / "jan" / "llamacpp" / "models" / "m" / "model.yml", f"model_path: elsewhere/{name}\n")
    (model,) = find("jan", [tmp_path / "jan"])
    assert [file.path.name for file in model.files] == [name]

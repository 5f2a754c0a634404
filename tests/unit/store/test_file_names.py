"""What names of files say, and headers of projectors."""

from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.errors import InvalidModel
from jan_serve.resources import builtin_model
from jan_serve.store import file_names
from jan_serve.store.file_names import is_projector_name, projectors_among
from jan_serve.store.gguf.model_file import read_projector
from models.recipe.projector_fixtures import ProjectorKind, write_tiny_projector

FOLDERS: dict[str, tuple[str, list[str], tuple[str, ...]]] = {
    "one model": (
        "gemma-3-4b-Q4_K_M.gguf",
        ["gemma-3-4b-Q4_K_M.gguf", "mmproj-F16.gguf"],
        ("mmproj-F16.gguf",),
    ),
    "the hub's usual name": (
        "a-Q8_0.gguf",
        ["a-Q8_0.gguf", "mmproj-model-f16.gguf"],
        ("mmproj-model-f16.gguf",),
    ),
    "several quantisations": (
        "a-Q8_0.gguf",
        ["a-Q8_0.gguf", "a-IQ4_XS.gguf", "mmproj-f16.gguf"],
        ("mmproj-f16.gguf",),
    ),
    "by name": (
        "a-Q4_0.gguf",
        ["a-Q4_0.gguf", "b-Q4_0.gguf", "mmproj-b-f16.gguf", "mmproj-a-f16.gguf", "mmproj-f16.gguf"],
        ("mmproj-a-f16.gguf",),
    ),
    "the name before others": (
        "a.gguf",
        ["a.gguf", "mmproj-f16.gguf", "mmproj-a-it.gguf", "mmproj-a.gguf"],
        ("mmproj-a.gguf", "mmproj-a-it.gguf", "mmproj-f16.gguf"),
    ),
    "the mark at the end": ("a.gguf", ["a.gguf", "a.mmproj-q8_0.gguf"], ("a.mmproj-q8_0.gguf",)),
    "precisions": (
        "a.gguf",
        ["a.gguf", "mmproj-a-f32.gguf", "mmproj-a-BF16.gguf", "mmproj-a-Q8_0.gguf", "mmproj-a-F16.gguf"],
        ("mmproj-a-F16.gguf", "mmproj-a-Q8_0.gguf", "mmproj-a-BF16.gguf", "mmproj-a-f32.gguf"),
    ),
    "a split model": (
        "a-Q8_0-00001-of-00002.gguf",
        ["a-Q8_0-00001-of-00002.gguf", "a-Q8_0-00002-of-00002.gguf", "mmproj-a-F16.gguf"],
        ("mmproj-a-F16.gguf",),
    ),
    "another model's": ("a.gguf", ["a.gguf", "ab.gguf", "mmproj-ab.gguf"], ()),
    "none": ("a.gguf", ["a.gguf", "readme.md"], ()),
}


@pytest.mark.parametrize(("model", "files", "found"), FOLDERS.values(), ids=FOLDERS)
def test_projectors_of_a_folder(model: str, files: list[str], found: tuple[str, ...]) -> None:
    assert projectors_among(files)(model) == found
    assert projectors_among(files[::-1])(model) == found


def test_a_projector_is_known_by_its_name() -> None:
    assert is_projector_name("mmproj-a.gguf")
    assert is_projector_name("a.MMPROJ.GGUF")
    assert not is_projector_name("a.gguf")
    assert not is_projector_name("mmproj.txt")


def test_a_folder_of_many_models_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    stem = file_names._own_stem  # pyright: ignore[reportPrivateUsage]: its calls are the work

    def counted(file: str) -> str:
        read.append(file)
        return stem(file)

    monkeypatch.setattr(file_names, "_own_stem", counted)
    models = [f"model-{number}-Q8_0.gguf" for number in range(500)]
    of = file_names.projectors_among([*models, "mmproj-model-7-f16.gguf"])
    assert [model for model in models if of(model)] == ["model-7-Q8_0.gguf"]
    assert len(read) <= 2 * len(models) + 1


@pytest.mark.parametrize("kind", ["mlp", "gemma3", "qwen2vl_merger"])
def test_a_projector_says_what_it_reads_and_whom_it_fits(kind: ProjectorKind, tmp_path: Path) -> None:
    path = tmp_path / "mmproj.gguf"
    write_tiny_projector(path, kind, n_embd=96)
    found = read_projector(path)
    assert (found.senses, found.width) == (("vision",), 96)
    assert found.fits(96)
    assert not found.fits(192)
    assert found.file_bytes == path.stat().st_size < found.memory_bytes


def test_other_files_are_no_projectors(tmp_path: Path) -> None:
    model = builtin_model()
    assert model is not None
    with pytest.raises(InvalidModel, match=r"jan-tiny.gguf is no multimodal projector"):
        read_projector(model)
    broken = tmp_path / "mmproj.gguf"
    broken.write_bytes(b"GGUF")
    with pytest.raises(InvalidModel):
        read_projector(broken)

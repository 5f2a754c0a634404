"""What management makes of names."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jan_serve.core.models import HeaderFacts
from jan_serve.errors import JanServeError, ModelNotFound, Unavailable
from jan_serve.helpers.kinds import ReadHeader
from jan_serve.store.gguf.model_file import read_model_file
from jan_serve.store.index import ModelEntry, ModelIndex
from jan_serve.store.library import ModelLibrary
from jan_serve.store.model_names import ConfiguredNames
from jan_serve.store.resolve import ModelResolver
from tests.unit.store.gguf_builder import BOOL, GgufBytes, key, uint_key


def no_puller() -> Any:
    raise AssertionError("nothing is pulled")


@pytest.fixture
def library(tmp_path: Path) -> ModelLibrary:
    (tmp_path / "plain-7b.gguf").write_bytes(b"GGUF")
    names = {"plain-7b": ConfiguredNames(("gpt",), ("sql",))}
    return ModelLibrary(ModelResolver(tmp_path, names=lambda: names), tmp_path, no_puller)


@pytest.mark.parametrize("name", ["plain", "PLAIN-7B", "gpt", "sql", "plain-7b:sql", "plain-7b.gguf"])
def test_only_the_canonical_name_removes(library: ModelLibrary, name: str) -> None:
    with pytest.raises(ModelNotFound):
        library.remove(name)
    assert library.find("plain-7b") == "plain-7b"
    assert library.remove("plain-7b").name == "plain-7b"


class CountingReader:
    """Reads the headers here, and keeps their names."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.rests = 0
        self.error: JanServeError | None = None

    async def ask(self, request: ReadHeader) -> HeaderFacts:
        path = Path(request.path)
        self.read.append(path.stem)
        if self.error is not None:
            raise self.error
        return read_model_file(path).facts(lambda _: False)

    async def rest(self) -> None:
        self.rests += 1

    async def close(self) -> None:
        pass


def counted(folder: Path) -> tuple[ModelLibrary, CountingReader]:
    """As a server that has just started."""
    reader = CountingReader()
    resolver = ModelResolver(folder, index=ModelIndex(folder), thinks=lambda _: False)
    return ModelLibrary(resolver, folder, no_puller, reader), reader


@pytest.mark.anyio
async def test_each_header_is_read_once_and_none_after_a_restart(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.gguf").write_bytes(GgufBytes().build())
    library, reader = counted(tmp_path)
    assert [model.facts for model in await library.models()] == [None, None, None]
    await library.models()  # while the headers are read
    await library.start_reading()
    await library.close()
    assert sorted(reader.read) == ["a", "b", "c"]
    assert reader.rests > 0

    (tmp_path / "b.gguf").write_bytes(GgufBytes(architecture="qwen2").build())
    library, reader = counted(tmp_path)
    known = {model.name: model.facts for model in await library.models()}
    assert known["a"] is not None and known["b"] is None
    await library.start_reading()
    found = {model.name: model.facts for model in await library.models()}
    assert found["b"] is not None and found["b"].architecture == "qwen2"
    await library.close()
    assert reader.read == ["b"]


@pytest.mark.anyio
async def test_a_broken_header_is_read_once_and_an_error_of_ours_again(tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    (tmp_path / "other.gguf").write_bytes(GgufBytes().build())
    library, reader = counted(tmp_path)
    reader.error = Unavailable("The server cannot open more files now.")
    await library.start_reading()
    assert reader.read == ["broken"]
    reader.error = None
    await library.start_reading()
    broken, other = await library.models()
    await library.close()
    assert broken.problem is not None and "not a valid GGUF" in broken.problem
    assert other.facts is not None
    assert reader.read == ["broken", "broken", "other"]


@pytest.mark.anyio
async def test_a_list_after_the_headers_were_read_opens_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(50):
        (tmp_path / f"m{index}.gguf").write_bytes(GgufBytes().build())
    library, _ = counted(tmp_path)
    await library.start_reading()
    opened: list[object] = []

    def watch(path: object, *_: object, **__: object) -> None:
        opened.append(path)

    with monkeypatch.context() as watched:
        watched.setattr("builtins.open", watch)
        listed = await library.models()
    await library.close()
    assert len(listed) == 50
    assert all(model.facts is not None for model in listed)
    assert opened == []


EMBEDDINGS = uint_key("llama.embedding_length", 64)
SEES = key("clip.has_vision_encoder", BOOL, b"\1")


def _touch(folder: Path) -> None:
    os.utime(folder / "plain.gguf", (1, 1))


def _spoil_the_projector(folder: Path) -> None:
    (folder / "mmproj-eyes.gguf").write_bytes(b"no projector now")


def _lose_a_part(folder: Path) -> None:
    (folder / "parts-00002-of-00002.gguf").unlink()


@pytest.mark.parametrize(
    ("changed", "change"),
    [
        ("plain", _touch),
        ("eyes", _spoil_the_projector),
        ("parts", _lose_a_part),
    ],
)
@pytest.mark.anyio
async def test_a_list_has_what_changed_and_the_same_of_the_rest(
    tmp_path: Path, changed: str, change: Callable[[Path], object]
) -> None:
    model = GgufBytes(keys=(EMBEDDINGS,)).build()
    for name in ("plain", "eyes", "other", "parts-00001-of-00002", "parts-00002-of-00002"):
        (tmp_path / f"{name}.gguf").write_bytes(model)
    (tmp_path / "mmproj-eyes.gguf").write_bytes(
        GgufBytes(architecture="clip", keys=(SEES,), tensors=()).build()
    )
    library, _ = counted(tmp_path)
    await library.start_reading()
    before = {each.name: each for each in await library.models()}
    assert before["eyes"].modalities == ("vision",)
    change(tmp_path)
    after = {each.name: each for each in await library.models()}
    await library.close()
    assert after.keys() == before.keys()
    assert [name for name in before if after[name] != before[name]] == [changed]


@pytest.mark.anyio
async def test_a_header_that_is_read_while_a_list_is_made_is_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    library, _ = counted(tmp_path)
    loop = asyncio.get_running_loop()
    first = iter([True])

    async def read() -> None:
        await library.start_reading()

    def read_meanwhile(entry: ModelEntry) -> int:
        if next(first, False):
            asyncio.run_coroutine_threadsafe(read(), loop).result(30)
        return entry.size_bytes

    with monkeypatch.context() as reading:
        reading.setattr("jan_serve.store.library._size", read_meanwhile)
        [model] = await library.models()
        assert model.problem is None
    [model] = await library.models()
    await library.close()
    assert model.problem is not None

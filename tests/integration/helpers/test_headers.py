"""The process that reads headers: facts as this process reads them, and what a bad file or process costs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import psutil
import pytest

from jan_serve.chat.detect import knows_thoughts
from jan_serve.core.models import HeaderFacts
from jan_serve.errors import InvalidModel
from jan_serve.helpers.kinds import HEADERS, ReadHeader
from jan_serve.helpers.pool import HelperPool
from jan_serve.store.gguf.model_file import read_model_file
from tests.integration.helpers.helper_pools import helper_pool
from tests.support.processes import children
from tests.unit.store.gguf_builder import GgufBytes, string_key

pytestmark = pytest.mark.anyio


def reader(
    command: Sequence[str] | None = None,
) -> AbstractAsyncContextManager[HelperPool[ReadHeader, HeaderFacts]]:
    return helper_pool(HEADERS, command)


def read(path: Path) -> ReadHeader:
    return ReadHeader(path=str(path))


def model(folder: Path, name: str, template: str) -> Path:
    path = folder / f"{name}.gguf"
    path.write_bytes(GgufBytes(keys=[string_key("tokenizer.chat_template", template)]).build())
    return path


async def test_one_process_reads_them_all_and_gives_way_to_others(tmp_path: Path) -> None:
    paths = [model(tmp_path, f"m{index}", f"{{{{ {index} }}}}<think>") for index in range(5)]
    async with reader() as headers:
        for path in paths:
            assert await headers.ask(read(path)) == read_model_file(path).facts(knows_thoughts)
        [process] = children()
        if sys.platform != "win32":
            assert process.nice() == min(19, psutil.Process().nice() + 19)
        await headers.rest()
        assert children() == []
        assert (await headers.ask(read(paths[0]))).thinks is not None


async def test_a_damaged_file_has_its_reason(tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF")
    async with reader() as headers:
        with pytest.raises(InvalidModel, match=r"bad\.gguf is not a valid GGUF file"):
            await headers.ask(read(bad))
        with pytest.raises(InvalidModel, match="cannot be read"):
            await headers.ask(read(tmp_path / "none.gguf"))

"""The headers of published models are as large as the models."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from jan_serve.store.gguf.gguf_header import read_gguf_header
from tests.conformance.fit.headers import ARCHITECTURES, tensors_of, write_header
from tests.unit.placement.shapes import PARAMETERS


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_header_has_the_published_number_of_parameters(name: str, tmp_path: Path) -> None:
    path = tmp_path / "header.gguf"
    write_header(path, name)
    header = read_gguf_header(path)
    count = sum(math.prod(dims) for dims, _ in tensors_of(name).values())
    assert len(header.tensors) == len(tensors_of(name))
    assert count / 1e9 == pytest.approx(PARAMETERS[name], rel=0.01)
    assert path.stat().st_blocks * 512 < 1_000_000

from __future__ import annotations

import base64
import json
import struct

import pytest

from jan_serve.dialects.shared.embedding_list import embedding_list

pytestmark = pytest.mark.anyio

VECTORS = [struct.pack("<2f", number, -0.5) for number in range(40)]


async def test_vectors_as_numbers_and_as_base64() -> None:
    numbers = await embedding_list(VECTORS, as_base64=False)
    assert [item.index for item in numbers] == list(range(40))
    assert [json.loads(bytes(item.embedding)) for item in numbers[:2]] == [[0.0, -0.5], [1.0, -0.5]]
    encoded = await embedding_list(VECTORS, as_base64=True)
    assert [base64.b64decode(json.loads(bytes(item.embedding))) for item in encoded] == VECTORS

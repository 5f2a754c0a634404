from __future__ import annotations

from collections.abc import AsyncGenerator

import httpx
import pytest

from tests.support.fronts import http_client


@pytest.fixture
async def client() -> AsyncGenerator[httpx.AsyncClient]:
    async with http_client() as client:
        yield client

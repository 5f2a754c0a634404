"""A server with the built-in model for all clients."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from jan_serve.resources import builtin_model
from tests.integration.http.support import serving_models


@pytest.fixture(scope="package")
def url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    model = builtin_model()
    assert model is not None
    with serving_models(tmp_path_factory.mktemp("clients"), model) as server:
        yield server.url()

"""Claude's names find models by family."""

from __future__ import annotations

import pytest

from jan_serve.dialects.anthropic.claude_leases import ClaudeLeases
from jan_serve.errors import ModelNotFound
from tests.support.fake_client import FakeClient, FakeModels

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("name", "served"), [("claude-haiku-4-5", "haiku"), ("claude-opus-4", "claude"), (None, "haiku")]
)
async def test_the_first_model_of_these_names_serves(name: str | None, served: str) -> None:
    models = FakeModels(FakeClient("haiku"), FakeClient("claude"))
    async with ClaudeLeases(models).lease(name, 5.0) as client:
        assert client.name == served
    assert models.held == 0
    assert set(models.keep_alives) == {5.0}


async def test_the_error_has_the_name_in_the_request() -> None:
    with pytest.raises(ModelNotFound, match="claude-opus-4"):
        async with ClaudeLeases(FakeModels(FakeClient("other"))).lease("claude-opus-4"):
            raise AssertionError("there is no such model")

"""The names that a service looks up for the one in a request."""

from __future__ import annotations

import pytest

from jan_serve.dialects.anthropic.claude_names import names_for, names_or_default
from jan_serve.errors import ModelNotFound, Overloaded
from jan_serve.generation.service import Names, exact_name, name_or_default
from tests.support.fake_client import FakeClient, FakeModels
from tests.unit.generation.support import service_over

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("names", "asked", "served"),
    [
        (exact_name, None, "haiku"),
        (exact_name, "claude", "claude"),
        (name_or_default, None, "haiku"),
        (name_or_default, "claude", "claude"),
        (name_or_default, "gpt-4o", "haiku"),
        (names_for, None, "haiku"),
        (names_for, "claude-haiku-4-5", "haiku"),
        (names_for, "claude-opus-4", "claude"),
        (names_or_default, "claude-opus-4", "claude"),
        (names_or_default, "gpt-4o", "haiku"),
    ],
)
async def test_the_first_model_of_the_names_serves(names: Names, asked: str | None, served: str) -> None:
    models = FakeModels(FakeClient("haiku"), FakeClient("claude"))
    with service_over(models, names=names) as service:
        async with service.open(asked, 5.0) as model:
            assert (model.name, models.held) == (served, 1)
    assert models.held == 0
    assert set(models.keep_alives) == {5.0}


@pytest.mark.parametrize(
    ("names", "missing"),
    [(exact_name, "gpt-4o"), (names_for, "claude-opus-4"), (name_or_default, "gpt-4o")],
)
async def test_the_error_names_what_is_missing(names: Names, missing: str) -> None:
    """Where the default model is looked up too, that is missing."""
    models = FakeModels(FakeClient("other"))
    if names is name_or_default:
        models.refusal = ModelNotFound("default")
    with (
        service_over(models, names=names) as service,
        pytest.raises(ModelNotFound, match="default" if models.refusal else missing),
    ):
        async with service.open(missing):
            raise AssertionError


async def test_other_refusals_and_errors_inside_end_the_search() -> None:
    models = FakeModels()
    with service_over(models, names=name_or_default) as service:
        with pytest.raises(ModelNotFound, match="inside"):
            async with service.open("fake"):
                raise ModelNotFound("inside")
        models.refusal = Overloaded("full")
        with pytest.raises(Overloaded):
            async with service.open("b"):
                raise AssertionError
    assert models.leased == ["fake", "b"]

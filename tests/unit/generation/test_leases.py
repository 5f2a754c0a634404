from __future__ import annotations

import pytest

from jan_serve.errors import ModelNotFound, Overloaded
from jan_serve.generation.leases import DefaultingLeases
from tests.support.fake_client import FakeClient, FakeModels

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("asked", "served"), [(None, "a"), ("b", "b"), ("gpt-4o", "a")])
async def test_an_unknown_name_is_served_by_the_default_model(asked: str | None, served: str) -> None:
    models = FakeModels(FakeClient("a"), FakeClient("b"))
    async with DefaultingLeases(models).lease(asked) as client:
        assert client.name == served
        assert models.held == 1
    assert models.held == 0


async def test_without_any_model_the_default_is_what_is_missing() -> None:
    models = FakeModels(FakeClient("a"))
    models.refusal = ModelNotFound("a")
    with pytest.raises(ModelNotFound):
        async with DefaultingLeases(models).lease("b"):
            raise AssertionError


async def test_other_refusals_are_not_hidden() -> None:
    models = FakeModels()
    models.refusal = Overloaded("full")
    with pytest.raises(Overloaded):
        async with DefaultingLeases(models).lease("b"):
            raise AssertionError
    assert models.leased == ["b"]


async def test_an_error_inside_does_not_lease_again() -> None:
    models = FakeModels()
    with pytest.raises(ModelNotFound):
        async with DefaultingLeases(models).lease("fake"):
            raise ModelNotFound("inside")
    assert models.leased == ["fake"]

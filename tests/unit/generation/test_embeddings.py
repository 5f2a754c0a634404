from __future__ import annotations

import math
import struct
from functools import partial

import pytest

from jan_serve.errors import InvalidRequest, UnsupportedOperation
from jan_serve.generation.embeddings import Embeddings, embed, shorten, to_floats
from tests.support.fake_client import N_EMBD, FakeClient, FakeModels, fake_facts
from tests.support.fronts import http_client
from tests.unit.generation.support import service_over

pytestmark = pytest.mark.anyio


async def embedded(
    models: FakeModels, inputs: list[str | tuple[int, ...]], dimensions: int | None = None
) -> Embeddings:
    with service_over(models) as service:
        return await service.with_model(None, partial(embed, inputs=inputs, dimensions=dimensions))


async def test_one_vector_per_input() -> None:
    models = FakeModels()
    result = await embedded(models, ["ab", (1, 2, 3)])
    assert (result.model, result.dimensions, result.prompt_tokens) == ("fake", N_EMBD, 5)
    assert to_floats(result.vectors[1]) == pytest.approx((0.6, 0.8, 0.0, 0.0))
    assert models.held == 0


async def test_fewer_dimensions_have_unit_length_again() -> None:
    result = await embedded(FakeModels(), ["a"], dimensions=1)
    assert (result.dimensions, to_floats(result.vectors[0])) == (1, (1.0,))


async def test_more_dimensions_than_the_model_has_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"from 1 to 4.*got 5"):
        await embedded(FakeModels(), ["a"], dimensions=5)


async def test_a_ranking_model_does_not_embed() -> None:
    models = FakeModels(FakeClient(facts=fake_facts(pooling="rank")))
    with pytest.raises(UnsupportedOperation):
        await embedded(models, ["a"])


async def test_a_model_without_pooling_has_no_vector_of_an_input() -> None:
    facts = fake_facts(pooling="none", is_embedding_model=True)
    models = FakeModels(FakeClient(name="m", facts=facts))
    with pytest.raises(UnsupportedOperation, match="a vector for each token") as caught:
        await embedded(models, ["a"])
    assert caught.value.param == "model"
    async with http_client(models) as client:
        for path in (
            "/v1/embeddings",
            "/embeddings",
            "/api/embed",
            "/lmdeploy/v1/embeddings",
            "/lmdeploy/pooling",
        ):
            response = await client.post(path, json={"model": "m", "input": "a"})
            assert (response.status_code, "pooling `none`" in response.text) == (400, True), path


@pytest.mark.parametrize("dimensions", [1, 2, 3, 7, 8])
def test_shortened_vectors_keep_their_direction(dimensions: int) -> None:
    values = [0.5, -1.5, 2.0, 0.25, -0.125, 1.0, 3.0, -2.0]
    kept = to_floats(shorten(struct.pack("<8f", *values), dimensions))
    assert math.hypot(*kept) == pytest.approx(1.0, abs=1e-6)
    assert [k * values[0] for k in kept] == pytest.approx(
        [v * kept[0] for v in values[:dimensions]], abs=1e-6
    )


def test_a_zero_vector_stays_zero() -> None:
    assert to_floats(shorten(bytes(8), 1)) == (0.0,)

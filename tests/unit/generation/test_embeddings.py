from __future__ import annotations

import math
import struct
from functools import partial

import pytest

from jan_serve.errors import InvalidRequest, ModelNotFound, UnsupportedOperation
from jan_serve.generation.embeddings import Vectors, embed, pool, shorten, to_floats
from jan_serve.ipc.messages import Embedded, EmbedRequest
from tests.support.engine.fake_client import N_EMBD, FakeClient, FakeModels, fake_facts
from tests.support.servers.fronts import http_client
from tests.unit.generation.support import service_over

pytestmark = pytest.mark.anyio


async def embedded(
    models: FakeModels, inputs: list[str | tuple[int, ...]], dimensions: int | None = None
) -> Vectors:
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


class Scoring(FakeClient):
    """Answers every input with its number; remembers what it was asked."""

    asked: EmbedRequest | None = None

    async def embed(self, request: EmbedRequest) -> Embedded:
        self.asked = request
        scores = tuple(struct.pack("<f", float(number)) for number in range(len(request.inputs)))
        return Embedded(id=request.id, vectors=scores, dimensions=1, prompt_tokens=9)


async def pooled(models: FakeModels, name: str | None, inputs: list[str | tuple[int, ...]]) -> Vectors:
    with service_over(models) as service:
        return await service.with_model(name, partial(pool, inputs=inputs))


async def test_scores_come_as_the_model_gives_them() -> None:
    client = Scoring(facts=fake_facts(is_embedding_model=True, pooling="rank"))
    models = FakeModels(client)
    result = await pooled(models, None, ["ab", (1, 2)])
    scores = (struct.pack("<f", 0.0), struct.pack("<f", 1.0))
    assert result == Vectors(model="fake", vectors=scores, dimensions=1, score_at=0, prompt_tokens=9)
    assert client.asked is not None
    assert (client.asked.inputs, client.asked.normalize) == (("ab", (1, 2)), False)
    assert client.asked.parse_special, "chats come in the model's template"
    assert models.held == 0


async def test_an_embedding_model_gives_its_vectors() -> None:
    models = FakeModels(FakeClient(facts=fake_facts(is_embedding_model=True)))
    result = await pooled(models, "fake", ["a"])
    assert (result.score_at, result.dimensions, len(result.vectors)) == (None, N_EMBD, 1)


@pytest.mark.parametrize(
    ("labels", "at"),
    [
        (("yes", "no"), 0),
        (("no", "yes"), 1),
        (("joy", "anger"), None),
        (("yes", "no", "both"), None),
        ((), None),
    ],
)
async def test_the_score_of_a_judge_is_its_yes(labels: tuple[str, ...], at: int | None) -> None:
    facts = fake_facts(is_embedding_model=True, pooling="rank", score_labels=labels)
    assert (await pooled(FakeModels(FakeClient(facts=facts)), None, ["a"])).score_at == at


async def test_a_generative_model_is_refused() -> None:
    models = FakeModels()
    with pytest.raises(UnsupportedOperation) as error:
        await pooled(models, None, ["a"])
    assert error.value.param == "model"
    assert models.held == 0
    with pytest.raises(ModelNotFound):
        await pooled(models, "other", ["a"])

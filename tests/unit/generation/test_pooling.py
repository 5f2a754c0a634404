from __future__ import annotations

import struct
from functools import partial

import pytest

from jan_serve.errors import ModelNotFound, UnsupportedOperation
from jan_serve.generation.pooling import Pooled, pool
from jan_serve.ipc.messages import Embedded, EmbedRequest
from tests.support.fake_client import N_EMBD, FakeClient, FakeModels, fake_facts
from tests.unit.generation.support import service_over

pytestmark = pytest.mark.anyio


class Scoring(FakeClient):
    """Answers every input with its number; remembers what it was asked."""

    asked: EmbedRequest | None = None

    async def embed(self, request: EmbedRequest) -> Embedded:
        self.asked = request
        scores = tuple(struct.pack("<f", float(number)) for number in range(len(request.inputs)))
        return Embedded(id=request.id, vectors=scores, dimensions=1, prompt_tokens=9)


async def pooled(models: FakeModels, name: str | None, inputs: list[str | tuple[int, ...]]) -> Pooled:
    with service_over(models) as service:
        return await service.with_model(name, partial(pool, inputs=inputs))


async def test_scores_come_as_the_model_gives_them() -> None:
    client = Scoring(facts=fake_facts(is_embedding_model=True, pooling="rank"))
    models = FakeModels(client)
    result = await pooled(models, None, ["ab", (1, 2)])
    scores = (struct.pack("<f", 0.0), struct.pack("<f", 1.0))
    assert result == Pooled(model="fake", vectors=scores, dimensions=1, score_at=0, prompt_tokens=9)
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

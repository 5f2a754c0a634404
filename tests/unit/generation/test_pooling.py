from __future__ import annotations

import struct

import pytest

from jan_serve.errors import ModelNotFound, UnsupportedOperation
from jan_serve.generation.deadline import RunningRequests
from jan_serve.generation.pooling import Pooled, PoolingService
from jan_serve.ipc.messages import Embedded, EmbedRequest
from tests.support.fake_client import N_EMBD, FakeClient, FakeModels, fake_facts

pytestmark = pytest.mark.anyio


class Scoring(FakeClient):
    """Answers every input with its number; remembers what it was asked."""

    asked: EmbedRequest | None = None

    async def embed(self, request: EmbedRequest) -> Embedded:
        self.asked = request
        scores = tuple(struct.pack("<f", float(number)) for number in range(len(request.inputs)))
        return Embedded(id=request.id, vectors=scores, dimensions=1, prompt_tokens=9)


def service(models: FakeModels) -> PoolingService:
    return PoolingService(models, RunningRequests(None))


async def test_scores_come_as_the_model_gives_them() -> None:
    client = Scoring(facts=fake_facts(is_embedding_model=True, pooling="rank"))
    models = FakeModels(client)
    pooled = await service(models).pool(None, ["ab", (1, 2)])
    scores = (struct.pack("<f", 0.0), struct.pack("<f", 1.0))
    assert pooled == Pooled(model="fake", vectors=scores, dimensions=1, score_at=0, prompt_tokens=9)
    assert client.asked is not None
    assert (client.asked.inputs, client.asked.normalize) == (("ab", (1, 2)), False)
    assert client.asked.parse_special, "chats come in the model's template"
    assert models.held == 0


async def test_an_embedding_model_gives_its_vectors() -> None:
    models = FakeModels(FakeClient(facts=fake_facts(is_embedding_model=True)))
    pooled = await service(models).pool("fake", ["a"])
    assert (pooled.score_at, pooled.dimensions, len(pooled.vectors)) == (None, N_EMBD, 1)


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
    assert (await service(FakeModels(FakeClient(facts=facts))).pool(None, ["a"])).score_at == at


async def test_a_generative_model_is_refused() -> None:
    models = FakeModels()
    with pytest.raises(UnsupportedOperation) as error:
        await service(models).pool(None, ["a"])
    assert error.value.param == "model"
    assert models.held == 0
    with pytest.raises(ModelNotFound):
        await service(models).pool("other", ["a"])

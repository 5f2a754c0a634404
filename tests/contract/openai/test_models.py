"""The list of models: facts of models that are loaded and of those that are not, and their adapters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from msgspec.structs import replace

from jan_serve.core.models import HeaderFacts, ListedModel, ModelStatus
from jan_serve.dialects.openai.models import add_routes
from jan_serve.errors import ModelNotFound
from jan_serve.generation.profiles import TemplateOverride
from tests.support.engine.fake_client import FakeClient, FakeModels, fake_facts

pytestmark = pytest.mark.anyio

BASE = ListedModel(
    name="org/m",
    aliases=("m", "short"),
    adapters=("sql",),
    source="hub",
    source_name="org/m/m.gguf",
    size_bytes=70,
    modified_at=9,
    can_remove=True,
    facts=HeaderFacts(architecture="llama", n_ctx_train=4096),
    problem=None,
)
OTHER = replace(BASE, name="other", aliases=(), adapters=(), facts=None, problem="not a GGUF file")


class Loaded(FakeModels):
    """`org/m` is in memory with a context of 512 tokens."""

    def snapshot(self) -> Any:
        state = ModelStatus(name="org/m", path="/m", state="ready", facts=fake_facts(n_ctx=512))
        return SimpleNamespace(models=(state,))


async def get(path: str, models: FakeModels, listed: tuple[ListedModel, ...] | None = None) -> Any:
    class Store:
        async def models(self) -> tuple[ListedModel, ...]:
            assert listed is not None
            return listed

        async def unknown(self, name: str) -> ModelNotFound:
            return ModelNotFound(name)

    def overrides() -> Any:
        def override(model: str, requested: str) -> TemplateOverride | None:
            return TemplateOverride("chatml") if requested == "short" else None

        return override

    services: Any = SimpleNamespace(
        models=models,
        store=None if listed is None else Store(),
        preparer=SimpleNamespace(template_overrides=overrides),
    )
    app, router = FastAPI(), APIRouter()
    add_routes(router, SimpleNamespace(services=services))  # pyright: ignore[reportArgumentType]
    app.include_router(router)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        return (await client.get(path)).json()


async def test_without_a_library_only_names_are_known() -> None:
    models = FakeModels(FakeClient(name="one"), FakeClient(name="two"))
    listed = await get("/v1/models", models)
    bare: dict[str, Any] = {"object": "model", "created": 0, "owned_by": "jan-serve", "permissions": []}
    assert listed == {"object": "list", "data": [{"id": "one", **bare}, {"id": "two", **bare}]}
    assert await get("/v1/models/two", models) == {"id": "two", **bare}
    with pytest.raises(ModelNotFound):
        await get("/v1/models/three", models)


async def test_a_loaded_model_has_its_own_context_and_its_adapters_too() -> None:
    data = (await get("/v1/models", Loaded(), (BASE, OTHER)))["data"]
    assert [
        (card["id"], card["aliases"], card["context_length"], card["max_model_len"]) for card in data
    ] == [
        ("org/m", ["m", "short"], 512, 512),
        ("org/m:sql", ["m:sql", "short:sql"], 512, 512),
        ("other", [], None, None),
    ]
    assert [(card.get("root"), card.get("parent")) for card in data] == [
        (None, None),
        ("org/m", "org/m"),
        (None, None),
    ]
    assert (data[0]["created"], data[0]["meta"]["n_ctx"], data[2]["meta"]) == (9, 512, {"size": 70})


async def test_a_model_that_is_not_loaded_has_the_context_of_its_training() -> None:
    [card, _] = (await get("/v1/models", FakeModels(), (BASE,)))["data"]
    assert card["context_length"] == 4096


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("org/m", "org/m"),
        ("short", "org/m"),
        ("org/m:sql", "org/m:sql"),
        ("short:sql", "org/m:sql"),
        ("other:sql", None),
        ("org", None),
        ("M", None),
    ],
)
async def test_a_model_is_found_by_its_exact_name_or_alias(name: str, found: str | None) -> None:
    if found is None:
        with pytest.raises(ModelNotFound):
            await get(f"/v1/models/{name}", FakeModels(), (BASE,))
    else:
        assert (await get(f"/v1/models/{name}", FakeModels(), (BASE,)))["id"] == found


@pytest.mark.parametrize(("name", "chats"), [("org/m", False), ("m", False), ("short", True)])
async def test_a_variant_with_a_template_of_its_own_chats(name: str, chats: bool) -> None:
    card = await get(f"/v1/models/{name}", Loaded(), (BASE, OTHER))
    assert card["meta"]["has_chat_template"] is chats

"""What `/extras/requests` and the routes beside it say of requests whose engine is scripted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from jan_serve.core.events import EngineWork
from jan_serve.ipc.messages import EngineEvent, EngineRequest, RequestCompleted
from tests.support.fake_client import FakeClient, FakeModels, Script, saying
from tests.support.fronts import http_client

pytestmark = pytest.mark.anyio


def changed(script: Script, **fields: Any) -> Script:
    """The script, with these fields of its end."""

    async def events(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        async for event in script(request):
            is_last = isinstance(event, RequestCompleted)
            yield msgspec.structs.replace(event, **fields) if is_last else event

    return events


async def test_why_says_what_the_engine_did_for_the_request_over_all_its_prompts() -> None:
    work = EngineWork(cached_in="ram", drafted=5, accepted=4, forced=3, others_s=0.5)
    models = FakeModels(FakeClient(script=changed(saying("Hi"), work=work)))
    async with http_client(models) as client:
        for name, prompt, count in (("one", "a", 1), ("two", ["a", "b"], 2)):
            headers = {"x-request-id": name}
            answer = await client.post("/v1/completions", json={"prompt": prompt}, headers=headers)
            assert answer.status_code == 200
            why = (await client.get(f"/extras/why/{name}")).json()
            assert (why["cached_in"], why["others_s"]) == ("ram", 0.5)
            counted = [why[f"{kind}_tokens"] for kind in ("drafted", "accepted", "forced")]
            assert counted == [5 * count, 4 * count, 3 * count]

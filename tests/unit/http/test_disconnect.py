"""Work ends with the client, and its clean-up before the request."""

from __future__ import annotations

import asyncio

import pytest
from starlette.requests import Request

from jan_serve.errors import InvalidModel
from jan_serve.http.disconnect import while_connected
from jan_serve.http.errors import ClientGone

pytestmark = pytest.mark.anyio


class Client:
    """A client whose messages the test sends."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[str] = asyncio.Queue()
        self.request = Request({"type": "http"}, self._receive)

    async def _receive(self) -> dict[str, str]:
        return {"type": await self.messages.get()}


async def test_the_result_of_the_work_and_its_error_pass() -> None:
    async def fails() -> None:
        raise InvalidModel("broken")

    client = Client()
    before = asyncio.all_tasks()
    assert await while_connected(client.request, asyncio.sleep(0, "done")) == "done"
    with pytest.raises(InvalidModel, match="broken"):
        await while_connected(client.request, fails())
    assert asyncio.all_tasks() == before, "nobody waits for the client any more"


async def test_a_result_counts_even_if_the_client_leaves_at_the_same_time() -> None:
    client = Client()
    client.messages.put_nowait("http.disconnect")
    assert await while_connected(client.request, asyncio.sleep(0, "done")) == "done"


@pytest.mark.parametrize("cancel", [False, True])
async def test_the_work_has_cleaned_up_when_the_request_ends(cancel: bool) -> None:
    client = Client()
    steps: list[str] = []
    running = asyncio.Event()

    async def work() -> None:
        try:
            running.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            steps.append("cleaned up")

    task = asyncio.ensure_future(while_connected(client.request, work()))
    await running.wait()
    client.messages.put_nowait("http.request")
    await asyncio.sleep(0)
    assert not task.done()
    if cancel:
        task.cancel()
    else:
        client.messages.put_nowait("http.disconnect")
    with pytest.raises(asyncio.CancelledError if cancel else ClientGone):
        await task
    assert steps == ["cleaned up"]

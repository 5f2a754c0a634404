"""What is read for answers that chats wait for, and what another page writes meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from jan_serve.api.chats.awaited import AwaitedResponses
from jan_serve.journal.batches import Reply
from jan_serve.journal.chats import ChatTable, ChatToStore, StoredChat
from jan_serve.journal.journal import Journal
from jan_serve.journal.schema import CHATS, CHATS_FILE

pytestmark = pytest.mark.anyio

DONE: Final[dict[str, Any]] = {"status": "completed", "output": [], "error": None}


class CountingTable(ChatTable):
    """Counts how often the content of a chat is read."""

    reads = 0

    async def find(self, owner: str, chat_id: str) -> StoredChat | None:
        self.reads += 1
        return await super().find(owner, chat_id)


@pytest.fixture
async def table(tmp_path: Path) -> AsyncIterator[CountingTable]:
    journal = Journal(tmp_path / CHATS_FILE, 1 << 30, CHATS)
    yield CountingTable(journal)
    await journal.close()


def chat(*awaits: str) -> ChatToStore:
    messages = [{"id": f"of-{each}", "role": "assistant", "text": "", "response": each} for each in awaits]
    content = msgspec.json.encode({"settings": {}, "messages": messages})
    return ChatToStore(id="one", title="One", messages=len(awaits), content=content, text="", awaits=awaits)


def reply(body: dict[str, Any], status: int = 200) -> Reply:
    return Reply(status, msgspec.json.encode(body), "")


@pytest.mark.parametrize(
    ("awaits", "answer"),
    [
        ((), reply(DONE)),
        (("r1", "r2"), reply({"status": "queued"})),
        (("r1",), reply({"status": "in_progress"})),
        (("r1",), reply({}, 503)),
    ],
)
async def test_a_chat_is_read_only_for_an_answer_that_has_ended(
    table: CountingTable, awaits: tuple[str, ...], answer: Reply
) -> None:
    await table.put("", chat(*awaits), 0)

    async def ask(method: str, path: str) -> Reply:
        return answer

    for chat_id in ("one", None):
        await AwaitedResponses(table, ask).put_in(chat_id)
    assert table.reads == 0
    assert await table.awaits("", "one") == awaits


@pytest.mark.parametrize("left", [(), ("r2",)])
async def test_what_another_page_puts_in_meanwhile_is_not_written_again(
    table: CountingTable, left: tuple[str, ...]
) -> None:
    await table.put("", chat("r1"), 0)

    async def ask(method: str, path: str) -> Reply:
        await table.put("", chat(*left), 1)
        return reply(DONE)

    await AwaitedResponses(table, ask).put_in("one")
    stored = await table.find("", "one")
    assert stored is not None
    assert (stored.head.version, stored.awaits) == (2, left)

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from pydantic import TypeAdapter

from jan_serve.api.dialects.openai.responses.history import History
from jan_serve.api.dialects.openai.responses.store import ResponseStore
from jan_serve.api.dialects.openai.responses.wire_items import InputItem, MessageItem
from jan_serve.api.dialects.openai.responses.wire_reply import OutputMessage, OutputText, ResponseBody

ITEM: TypeAdapter[InputItem] = TypeAdapter(InputItem)


def answer(name: str, text: str = "a") -> ResponseBody:
    part: OutputText = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    item: OutputMessage = {
        "id": f"msg_{name}", "type": "message", "status": "completed", "role": "assistant", "content": [part],
    }  # fmt: skip
    return cast(ResponseBody, {"id": name, "output": [item]})


def asking(text: str) -> list[InputItem]:
    return [MessageItem(role="user", content=text)]


def contents(items: Sequence[InputItem]) -> list[str | None]:
    taken = History()
    taken.add(items)
    return [message.content if isinstance(message.content, str) else None for message in taken.finished()]


def test_an_answer_has_all_that_came_before_it() -> None:
    store = ResponseStore(1 << 20)
    store.keep(answer("r1", "one"), None, asking("a"))
    first = store.get("r1")
    store.keep(answer("r2", "two"), first, asking("b"))
    second = store.get("r2")
    assert second is not None
    assert contents(second.items) == ["a", "one", "b", "two"]
    assert first is not None
    assert contents(first.items) == ["a", "one"]
    assert second.body["id"] == "r2"


def test_the_longest_unused_go_first_and_the_bound_holds() -> None:
    store = ResponseStore(8_000)
    for number in range(3):
        store.keep(answer(f"r{number}"), None, asking("x"))
    assert store.get("r0") is not None  # asked for: r1 is the longest unused now
    store.keep(answer("r3"), None, asking("x"))
    assert [name for name in ("r0", "r1", "r2", "r3") if store.get(name)] == ["r0", "r2", "r3"]


def test_what_is_larger_than_the_store_is_not_kept_and_costs_no_other() -> None:
    store = ResponseStore(8_000)
    store.keep(answer("small"), None, asking("x"))
    store.keep(answer("large", "y" * 9_000), None, asking("x"))
    store.keep(answer("long"), None, asking("x" * 9_000))
    assert store.get("small") is not None
    assert store.get("large") is store.get("long") is None


def test_a_conversation_counts_as_a_whole() -> None:
    store = ResponseStore(8_000)
    store.keep(answer("r1", "y" * 2_000), None, asking("x"))
    store.keep(answer("r2"), store.get("r1"), asking("x"))
    assert (store.get("r1"), store.get("r2") is not None) == (None, True)


def test_nothing_is_kept_without_room() -> None:
    store = ResponseStore(0)
    store.keep(answer("r1"), None, asking("x"))
    assert not store.keeps
    assert store.get("r1") is None


def test_references_are_replaced_while_their_answer_is_kept() -> None:
    store = ResponseStore(1 << 20)
    store.keep(answer("r1", "one"), None, asking("a"))
    known = ITEM.validate_python({"type": "item_reference", "id": "msg_r1"})
    unknown = ITEM.validate_python({"type": "item_reference", "id": "msg_r2"})
    items = store.resolved([*asking("b"), known, unknown])
    assert contents(items[:2]) == ["b", "one"]
    assert items[2] is unknown
    assert store.delete("r1")
    assert not store.delete("r1")
    assert store.resolved([known]) == [known]

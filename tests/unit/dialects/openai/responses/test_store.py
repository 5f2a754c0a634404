from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from pydantic import TypeAdapter

from jan_serve.dialects.openai.responses.parse import History
from jan_serve.dialects.openai.responses.store import ResponseStore
from jan_serve.dialects.openai.responses.wire import InputItem, MessageItem
from jan_serve.dialects.openai.responses.wire_reply import OutputMessage, OutputText, ResponseBody

A, B = "a key", "another key"
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
    store.keep(A, answer("r1", "one"), None, asking("a"))
    first = store.get(A, "r1")
    store.keep(A, answer("r2", "two"), first, asking("b"))
    second = store.get(A, "r2")
    assert second is not None
    assert contents(second.items) == ["a", "one", "b", "two"]
    assert first is not None
    assert contents(first.items) == ["a", "one"]
    assert second.body["id"] == "r2"


def test_the_longest_unused_go_first_and_the_bound_holds() -> None:
    store = ResponseStore(8_000)
    for number in range(3):
        store.keep(A, answer(f"r{number}"), None, asking("x"))
    assert store.get(A, "r0") is not None  # asked for: r1 is the longest unused now
    store.keep(A, answer("r3"), None, asking("x"))
    assert [name for name in ("r0", "r1", "r2", "r3") if store.get(A, name)] == ["r0", "r2", "r3"]


def test_what_is_larger_than_the_store_is_not_kept_and_costs_no_other() -> None:
    store = ResponseStore(8_000)
    store.keep(A, answer("small"), None, asking("x"))
    store.keep(A, answer("large", "y" * 9_000), None, asking("x"))
    store.keep(A, answer("long"), None, asking("x" * 9_000))
    assert store.get(A, "small") is not None
    assert store.get(A, "large") is store.get(A, "long") is None


def test_a_conversation_counts_as_a_whole() -> None:
    store = ResponseStore(8_000)
    store.keep(A, answer("r1", "y" * 2_000), None, asking("x"))
    store.keep(A, answer("r2"), store.get(A, "r1"), asking("x"))
    assert (store.get(A, "r1"), store.get(A, "r2") is not None) == (None, True)


def test_nothing_is_kept_without_room() -> None:
    store = ResponseStore(0)
    store.keep(A, answer("r1"), None, asking("x"))
    assert not store.keeps
    assert store.get(A, "r1") is None


def test_references_are_replaced_while_their_answer_is_kept() -> None:
    store = ResponseStore(1 << 20)
    store.keep(A, answer("r1", "one"), None, asking("a"))
    known = ITEM.validate_python({"type": "item_reference", "id": "msg_r1"})
    unknown = ITEM.validate_python({"type": "item_reference", "id": "msg_r2"})
    items = store.resolved(A, [*asking("b"), known, unknown])
    assert contents(items[:2]) == ["b", "one"]
    assert items[2] is unknown
    assert store.delete(A, "r1")
    assert not store.delete(A, "r1")
    assert store.resolved(A, [known]) == [known]


def test_another_caller_finds_continues_and_deletes_nothing() -> None:
    store = ResponseStore(1 << 20)
    store.keep(A, answer("r1"), None, asking("x"))
    reference = ITEM.validate_python({"type": "item_reference", "id": "msg_r1"})
    assert store.get(B, "r1") is None
    assert not store.delete(B, "r1")
    assert store.resolved(B, [reference]) == [reference]
    assert store.get(A, "r1") is not None
    assert store.resolved(A, [reference]) != [reference]


def test_a_caller_that_fills_the_store_pushes_out_its_own_answers() -> None:
    store = ResponseStore(12_000)
    store.keep(A, answer("mine"), None, asking("x"))
    for number in range(50):
        store.keep(B, answer(f"r{number}", "y" * 1_000), None, asking("x"))
    assert store.get(A, "mine") is not None
    assert store.get(B, "r49") is not None
    for number in range(50):  # the room of two
        store.keep(A, answer(f"a{number}", "y" * 1_000), None, asking("x"))
    assert store.get(A, "a49") is not None
    assert any(store.get(B, f"r{number}") for number in range(50))

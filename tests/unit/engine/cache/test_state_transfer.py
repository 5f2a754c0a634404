"""What identifies the states of a loaded model."""

from __future__ import annotations

import queue
from pathlib import Path

import pytest

from jan_serve.core.kv_transfer import SequenceState, StateIdentity
from jan_serve.engine.cache.state_transfer import StateShelf, StateTransfer
from jan_serve.errors import InvalidRequest, InvalidState, Overloaded
from jan_serve.ipc.messages import EngineSettings, LoadModel, ReadState, StatePart, StoreState

STATE = SequenceState(tokens=(1, 2), seed=0, next_token=3, logits=b"\0" * 8, memory=memoryview(b"cells"))


def transfer_of(folder: Path, projector: str | None) -> StateTransfer:
    path = None if projector is None else str(folder / projector)
    load = LoadModel(path=str(folder / "model.gguf"), settings=EngineSettings(projector=path))
    return StateTransfer(load, queue.SimpleQueue[object]().put)


def is_taken(state: bytes, by: StateTransfer) -> bool:
    try:
        by.shelf.store(StoreState(id=1, state=1, offset=0, total=len(state), data=state))
    except InvalidState as error:
        assert "it is of another model" in str(error)
        return False
    return True


def test_a_state_is_of_a_model_with_its_projector(tmp_path: Path) -> None:
    for name in ("model.gguf", "a.gguf", "b.gguf"):
        (tmp_path / name).write_text(name)
    source = transfer_of(tmp_path, "a.gguf")
    source.shelf.reserve(5, 1000)
    source.shelf.keep(5, STATE)
    part = source.shelf.read(ReadState(id=1, state=5, offset=0, length=1 << 20))
    assert isinstance(part, StatePart) and len(part.data) == part.total
    taken = [is_taken(part.data, transfer_of(tmp_path, name)) for name in ("a.gguf", "b.gguf", None)]
    assert taken == [True, False, False]


def test_a_state_is_of_the_rope_factors_of_its_context(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_text("weights")
    source, target = transfer_of(tmp_path, None), transfer_of(tmp_path, None)
    source.rope_factors = "short"
    source.shelf.reserve(5, 1000)
    source.shelf.keep(5, STATE)
    data = source.shelf.read(ReadState(id=1, state=5, offset=0, length=1 << 20)).data
    target.rope_factors = "long"
    with pytest.raises(InvalidState, match="short RoPE factors, and this one the long ones"):
        target.shelf.store(StoreState(id=1, state=1, offset=0, total=len(data), data=data))


HERE = StateIdentity(model="ab" * 32, type_k="f16", type_v="f16", llama_state=3)
SHELVED = SequenceState(tokens=(1, 2), seed=1, next_token=3, logits=b"l" * 8, memory=memoryview(b"m" * 99))


def shelf(limit_bytes: int = 1 << 20) -> StateShelf:
    return StateShelf(lambda: HERE, limit_bytes)


def kept(shelf: StateShelf, state: int = 7) -> bytes:
    shelf.reserve(state, 500)
    shelf.keep(state, SHELVED)
    return shelf.read(ReadState(id=1, state=state, offset=0, length=1 << 20)).data


def store(shelf: StateShelf, data: bytes, at: int = 0, total: int | None = None, state: int = 9) -> int:
    return shelf.store(
        StoreState(id=1, state=state, offset=at, total=len(data) if total is None else total, data=data)
    ).received


@pytest.mark.parametrize("step", [1, 3, 50, 1000])
def test_parts_join_to_the_whole(step: int) -> None:
    source, target = shelf(), shelf()
    whole = kept(source)
    for at in range(0, len(whole), step):
        part = source.read(ReadState(id=2, state=7, offset=at, length=step))
        assert part.total == len(whole)
        assert store(target, part.data, at, part.total) == at + len(part.data)
    assert bytes(target.take(9).memory) == bytes(SHELVED.memory)
    target.drop(9)
    assert len(target) == 0
    source.drop(7)
    assert len(source) == 0


def test_a_state_is_taken_once() -> None:
    one = shelf()
    store(one, kept(one))
    assert one.take(9).next_token == 3
    with pytest.raises(InvalidRequest):
        one.take(9)


def test_a_state_that_was_taken_takes_room_until_it_is_dropped() -> None:
    one = shelf()
    data = kept(one)
    one.drop(7)
    small = shelf(len(data) + 10)
    store(small, data)
    small.take(9)
    with pytest.raises(Overloaded, match=f"{len(data)} of {len(data) + 10} bytes"):
        store(small, data, state=10)
    small.drop(9)
    assert store(small, data, state=10) == len(data)


def test_room_is_counted_and_given_back() -> None:
    one = shelf(1000)
    one.reserve(1, 600)
    with pytest.raises(Overloaded, match="600 of 1000 bytes"):
        one.reserve(2, 401)
    one.reserve(1, 900)
    one.drop(1)
    one.reserve(2, 1000)
    with pytest.raises(Overloaded, match="1000 of 1000 bytes"):
        one.reserve(3, 1)


def test_what_was_dropped_cannot_be_read_or_continued() -> None:
    one = shelf()
    data = kept(one)
    store(one, data[:10], total=len(data))
    one.drop(9)
    one.drop(7)
    one.drop(12345)
    with pytest.raises(InvalidState, match="fit together"):
        store(one, data[10:], 10, len(data))
    with pytest.raises(InvalidState, match="not kept"):
        one.read(ReadState(id=1, state=7, offset=0, length=1))
    assert len(one) == 0


def test_a_state_that_is_dropped_while_it_is_copied_is_not_kept() -> None:
    one = shelf()
    one.reserve(7, 500)
    one.drop(7)
    one.keep(7, SHELVED)
    assert len(one) == 0
    with pytest.raises(InvalidState, match="not kept"):
        one.read(ReadState(id=1, state=7, offset=0, length=1))


def test_more_than_was_announced_is_refused() -> None:
    one = shelf()
    with pytest.raises(InvalidState, match="fit together"):
        store(one, b"abc", total=2)
    one.drop(9)
    assert len(one) == 0


@pytest.mark.parametrize("total", [0, -1, -(2**62)])
def test_an_empty_state_takes_no_room(total: int) -> None:
    one = shelf()
    with pytest.raises(InvalidState, match="empty"):
        store(one, b"", total=total)
    assert len(one) == 0

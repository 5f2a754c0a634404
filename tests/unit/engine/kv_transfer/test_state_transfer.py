"""What identifies the states of a loaded model."""

from __future__ import annotations

import queue
from pathlib import Path

import pytest

from jan_serve.core.sequence_state import SequenceState
from jan_serve.engine.kv_transfer.state_transfer import StateTransfer
from jan_serve.errors import InvalidState
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

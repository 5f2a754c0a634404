"""Contexts of real models: what a sequence computes after it was shared, cut, saved or restored."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from jan_serve.engine.llama import backend
from jan_serve.engine.llama.context import (
    DECODE_ABORTED,
    DECODE_NO_CELLS,
    DECODE_OK,
    AbortFlag,
    Batch,
    EmbeddingBatch,
    Floats,
    LlamaContext,
)
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.engine.llama.threads import ThreadPool
from jan_serve.errors import InsufficientMemory, JanServeError, SettingsError
from tests.support.gguf.models import EXACT

pytestmark = pytest.mark.integration

ALL = ["exact_llama", "exact_sliding", "exact_hybrid", "exact_recurrent"]
N_CTX = 256
FEW = np.arange(300, 340, dtype=np.int32)
MANY = np.arange(300, 420, dtype=np.int32)
NEXT = 290


@pytest.fixture(scope="module")
def open_model(request: pytest.FixtureRequest) -> Generator[Callable[[str], LlamaModel]]:
    """Opens the model of a fixture, once."""
    backend.start()
    models: dict[str, LlamaModel] = {}

    def opened(name: str) -> LlamaModel:
        if name not in models:
            path: Path = request.getfixturevalue(name)
            models[name] = LlamaModel(str(path))
        return models[name]

    yield opened
    for model in models.values():
        model.close()


@contextmanager
def context_of(model: LlamaModel, **settings: Any) -> Generator[LlamaContext]:
    types = {key: value for key, value in EXACT.items() if key != "threads"}
    fields: dict[str, Any] = {
        "n_ctx": N_CTX,
        "n_batch": 128,
        "n_ubatch": 128,
        "n_seq_max": 4,
        **types,
        **settings,
    }
    context = LlamaContext(model, threads=ThreadPool(1), **fields)
    yield context
    context.close()


def read(
    context: LlamaContext, tokens: np.ndarray[Any, np.dtype[np.int32]], pos: int = 0, seq_id: int = 0
) -> Floats:
    """The logits after the last one."""
    batch = Batch(128)
    index = batch.add(tokens, pos, seq_id, outputs="last")
    assert context.decode(batch) == DECODE_OK
    return context.logits(index).copy()


def step(context: LlamaContext, pos: int, seq_id: int = 0) -> Floats:
    return read(context, np.array([NEXT], np.int32), pos, seq_id)


def after(model: LlamaModel, tokens: np.ndarray[Any, np.dtype[np.int32]]) -> Floats:
    """The logits of the token NEXT after these, in a context of their own."""
    with context_of(model) as context:
        return read(context, np.append(tokens, np.int32(NEXT)))


def assert_same(found: Floats, expected: Floats) -> None:
    np.testing.assert_allclose(found, expected, atol=1e-3)


def is_empty(context: LlamaContext, seq_id: int) -> bool:
    """An empty sequence takes a token at position 0 and no other."""
    batch = Batch(1)
    batch.add(np.array([NEXT], np.int32), 5, seq_id, outputs="none")
    empty = context.decode(batch) == DECODE_OK
    context.remove(seq_id)
    return empty


# The batches


@pytest.mark.parametrize(("outputs", "marks"), [("none", [0, 0, 0]), ("last", [0, 0, 1]), ("all", [1, 1, 1])])
def test_a_batch_has_tokens_of_several_sequences(
    outputs: Literal["none", "last", "all"], marks: list[int]
) -> None:
    batch = Batch(5)
    for _ in range(2):  # what was in it before does not stay
        batch.clear()
        assert batch.add(np.array([7, 8], np.int32), 3, 1, outputs="all") == 1
        assert batch.add(np.array([4, 5, 6], np.int32), 0, 2, outputs=outputs) == 4
    raw: Any = batch.raw
    assert [raw.token[i] for i in range(5)] == [7, 8, 4, 5, 6]
    assert [raw.pos[i] for i in range(5)] == [3, 4, 0, 1, 2]
    assert [(raw.n_seq_id[i], raw.seq_id[i][0]) for i in range(5)] == [(1, 1)] * 2 + [(1, 2)] * 3
    assert [raw.logits[i] for i in range(5)] == [1, 1, *marks]
    with pytest.raises(ValueError, match="a batch of 5 tokens cannot take 6"):
        batch.add(np.array([1], np.int32), 0, 0, outputs="none")
    batch.clear()
    assert batch.add_one(9, 4, 3) == 0
    assert (batch.size, raw.token[0], raw.pos[0], raw.seq_id[0][0], raw.logits[0]) == (1, 9, 4, 3, 1)


def test_a_batch_of_embeddings_has_positions_of_each_component_together() -> None:
    rows = [np.full((2, 3), 1, np.float32), np.full((1, 3), 2, np.float32)]
    positions = [np.array([[5, 6], [0, 1]], np.int32), np.array([[9], [8]], np.int32)]
    batch = EmbeddingBatch(rows, positions, [4, 2], is_causal=False)
    raw: Any = batch.raw
    assert batch.size == 3 and not batch.is_causal
    assert [raw.embd[i] for i in range(9)] == [1.0] * 6 + [2.0] * 3
    assert [raw.pos[i] for i in range(6)] == [5, 6, 9, 0, 1, 8]
    assert [raw.seq_id[i][0] for i in range(3)] == [4, 4, 2]
    assert [raw.logits[i] for i in range(3)] == [0, 0, 0]


def test_the_flag_interrupts_a_decode_until_it_is_cleared(open_model: Callable[[str], LlamaModel]) -> None:
    with context_of(open_model("exact_llama")) as context:
        batch = Batch(128)
        batch.add(FEW, 0, 0, outputs="none")
        context.abort_flag.set()
        assert context.decode(batch) == DECODE_ABORTED
        context.clear()
        context.abort_flag.clear()
        assert context.decode(batch) == DECODE_OK


def test_a_flag_is_of_one_context() -> None:
    one, other = AbortFlag(), AbortFlag()
    one.set()
    assert [bool(flag.callback(flag.data)) for flag in (one, other)] == [True, False]
    one.clear()
    assert not one.callback(one.data)


# The memory of sequences


@pytest.mark.parametrize("name", ALL)
def test_a_whole_sequence_is_shared(open_model: Callable[[str], LlamaModel], name: str) -> None:
    model = open_model(name)
    with context_of(model) as context:
        read(context, FEW)
        context.copy_all(0, 1)
        assert_same(step(context, len(FEW), 1), after(model, FEW))
        assert_same(step(context, len(FEW), 0), after(model, FEW))
        context.remove(0)
        context.copy_all(1, 2)
        context.remove(1)
        expected = after(model, np.append(FEW, np.int32(NEXT)))
        assert_same(step(context, len(FEW) + 1, 2), expected)


def test_a_shared_prefix_stays_when_its_source_goes(open_model: Callable[[str], LlamaModel]) -> None:
    model = open_model("exact_llama")
    with context_of(model) as context:
        read(context, MANY)
        context.copy_prefix(0, 1, len(FEW))
        context.remove(0)
        assert_same(step(context, len(FEW), 1), after(model, FEW))


@pytest.mark.parametrize("name", ALL)
def test_a_sequence_is_cut_or_stays_as_it_was(open_model: Callable[[str], LlamaModel], name: str) -> None:
    model = open_model(name)
    with context_of(model) as context:
        read(context, MANY)
        is_cut = context.truncate(0, len(FEW))
        assert is_cut is (name in ("exact_llama", "exact_sliding"))
        kept = FEW if is_cut else MANY
        assert context.reaches_back(0, len(kept))
        assert_same(step(context, len(kept)), after(model, kept))


@pytest.mark.parametrize("name", ALL)
def test_cells_of_the_same_content_are_shared_where_the_memory_can(
    open_model: Callable[[str], LlamaModel], name: str
) -> None:
    model = open_model(name)
    with context_of(model) as context:
        read(context, MANY)
        read(context, FEW, seq_id=1)
        is_shared = context.replace_prefix(0, 1, len(FEW))
        assert is_shared is (name == "exact_llama")
        if is_shared:  # the cells of sequence 1 are free
            rest = N_CTX - len(MANY)
            for pos in range(0, rest, 68):
                read(context, np.resize(MANY, 68), pos, 2)
            context.remove(2)
        context.remove(0)
        assert_same(step(context, len(FEW), 1), after(model, FEW))


def test_a_full_memory_takes_nothing_more(open_model: Callable[[str], LlamaModel]) -> None:
    model = open_model("exact_llama")
    with context_of(model) as context:
        for seq_id in (0, 1):
            read(context, np.resize(MANY, 128), 0, seq_id)
        batch = Batch(1)
        batch.add_one(NEXT, 128, 0)
        assert context.decode(batch) == DECODE_NO_CELLS
        context.remove(1)
        assert context.decode(batch) == DECODE_OK


# Saved states


@pytest.mark.parametrize("name", ALL)
def test_a_saved_sequence_goes_on_in_another_context(
    open_model: Callable[[str], LlamaModel], name: str
) -> None:
    model = open_model(name)
    with context_of(model) as source, context_of(model) as target:
        read(source, MANY, seq_id=2)
        data = source.save_sequence(2)
        assert len(data) == source.state_bytes(2)
        assert target.restore_sequence(1, data, len(MANY))
        assert target.reaches_back(1, len(MANY))
        assert_same(step(target, len(MANY), 1), after(model, MANY))


def test_a_window_of_a_restored_sequence_reaches_not_far_back(
    open_model: Callable[[str], LlamaModel],
) -> None:
    model = open_model("exact_sliding")
    with context_of(model) as source, context_of(model) as target:
        assert source.has_window
        read(source, MANY)
        assert source.reaches_back(0, len(FEW))
        assert target.restore_sequence(0, source.save_sequence(0), len(MANY))
        assert target.reaches_back(0, len(MANY))
        assert not target.reaches_back(0, len(FEW))


def test_a_sequence_keeps_its_window_while_there_are_empty_cells(
    open_model: Callable[[str], LlamaModel],
) -> None:
    """With a window of 32, the first part of the last batch attends to tokens 33 to 63. The later part finds those of
    tokens 48 to 63, which the other sequence does not share, before empty cells."""
    model = open_model("exact_sliding")
    with context_of(model, n_ubatch=32) as context:
        read(context, FEW[:32], seq_id=2)
        read(context, MANY[:64])
        context.copy_prefix(0, 1, 48)
        context.remove(2)
        read(context, MANY[64:112], 64)
        assert_same(step(context, 112), after(model, MANY[:112]))
        context.truncate(0, 64)
        assert_same(step(context, 64), after(model, MANY[:64]))


@pytest.mark.parametrize("name", ALL)
def test_a_state_that_does_not_fit_leaves_the_sequence_empty(
    open_model: Callable[[str], LlamaModel], name: str
) -> None:
    model = open_model(name)
    with context_of(model) as context:
        read(context, FEW)
        data = context.save_sequence(0)
        for length in (len(FEW) - 1, len(FEW) + 1):
            assert not context.restore_sequence(1, data, length)
            assert context.state_bytes(1) < len(data)
        assert context.restore_sequence(1, data, len(FEW))
        assert_same(step(context, len(FEW), 1), after(model, FEW))


def test_a_state_of_other_types_is_not_restored(open_model: Callable[[str], LlamaModel]) -> None:
    model = open_model("exact_llama")
    with context_of(model) as source, context_of(model, type_k="f16", type_v="f16") as target:
        read(source, FEW)
        assert not target.restore_sequence(0, source.save_sequence(0), len(FEW))
        step(target, 0)


def test_a_state_needs_room(open_model: Callable[[str], LlamaModel]) -> None:
    model = open_model("exact_llama")
    with context_of(model) as context:
        read(context, MANY)
        read(context, MANY, seq_id=1)
        assert not context.restore_sequence(2, context.save_sequence(0), len(MANY))
        assert_same(step(context, len(MANY)), after(model, MANY))


# What a context is


@pytest.mark.parametrize(
    ("name", "is_causal"), [("exact_llama", True), ("exact_recurrent", True), ("tiny_bert", False)]
)
def test_whether_tokens_attend_to_earlier_ones_only(
    open_model: Callable[[str], LlamaModel], name: str, is_causal: bool
) -> None:
    with context_of(open_model(name), embeddings=True, pooling="none") as context:
        assert context.is_causal is is_causal


def test_outputs_that_a_context_does_not_have(open_model: Callable[[str], LlamaModel]) -> None:
    with context_of(open_model("exact_llama")) as context:
        read(context, FEW)
        with pytest.raises(ValueError, match="does not pool"):
            context.sequence_embedding(0, 64)
        with pytest.raises(ValueError, match="no embeddings"):
            context.token_embeddings(1, 64)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"type_v": "q8_0"},
            "type_v, flash_attn: values of type q8_0 require flash attention, and flash_attn is off",
        ),
        ({"n_batch": 0, "n_ubatch": 0}, "n_batch and n_ubatch cannot both be zero"),
    ],
)
def test_a_combination_that_llama_cpp_refuses_names_itself(
    open_model: Callable[[str], LlamaModel], fields: dict[str, Any], message: str
) -> None:
    with (
        pytest.raises(JanServeError, match=message) as caught,
        context_of(open_model("exact_llama"), **fields),
    ):
        pass
    assert not isinstance(caught.value, InsufficientMemory)


def test_an_unknown_type_of_the_cache(open_model: Callable[[str], LlamaModel]) -> None:
    with (
        pytest.raises(SettingsError, match=r"type_k: 'q3' is not a KV cache type; use one of f32, f16"),
        context_of(open_model("exact_llama"), type_k="q3"),
    ):
        pass


def test_a_context_may_be_closed_twice(open_model: Callable[[str], LlamaModel]) -> None:
    with context_of(open_model("exact_llama")) as context:
        context.close()
    assert context.pointer is None

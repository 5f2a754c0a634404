"""llama.cpp's attention on CPUs, as it is compiled here (``kernels/attention.h``), beside the same in NumPy."""

# ggml has no stubs.
# pyright: basic

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.drawn_grid import drawn_grid
from tests.support.gguf.ggml import Array, Ggml

pytestmark = pytest.mark.integration

F32, F16 = gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16
Q8_0, Q4_0 = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_0
BF16 = gguf.GGMLQuantizationType.BF16


@dataclass(frozen=True)
class Shape:
    """Sizes of an operation. sequences: of the cells and the rows, which see their own only."""

    rows: int
    cells: int
    heads: int = 14
    kv_heads: int = 2
    width: int = 64
    value_width: int = 64
    sequences: int = 1


def attention(
    ggml: Ggml,
    inputs: Sequence[ctypes.c_void_p | None],
    sinks: ctypes.c_void_p | None,
    numbers: tuple[float, float, float],
    shape: tuple[int, ...],
    threads: int,
) -> Array:
    """The result, of that shape. inputs: queries, keys, values, mask. numbers: scale, ALiBi's bias, soft cap."""
    result = ggml.operation("flash_attn_ext", *inputs, *map(ctypes.c_float, numbers))
    if sinks is not None:
        ggml.base.ggml_flash_attn_ext_add_sinks(result, sinks)
    return ggml.computed(result, shape, threads)


def hidden_cells(shape: Shape, random: np.random.Generator) -> NDArray[np.bool_]:
    """(rows, cells): a row sees the cells of its sequence up to its own place, in runs and strewn."""
    owners = np.repeat(np.arange(shape.sequences), -(-shape.cells // shape.sequences))[: shape.cells]
    rows = np.sort(random.integers(0, shape.sequences, shape.rows))
    hidden = owners[None] != rows[:, None]
    for row in range(shape.rows):
        own = np.flatnonzero(owners == rows[row])
        hidden[row, own[max(1, len(own) - shape.rows + row) :]] = True
    hidden |= (random.random(shape.cells) < 0.05) & (owners != rows[:, None])
    return hidden


def expected(
    q: Array,
    k: Array,
    v: Array,
    hidden: NDArray[np.bool_],
    slopes: Array,
    softcap: float,
    sinks: Array | None,
) -> Array:
    """(rows, heads, width) of queries (heads, rows, width), keys and values (kv heads, cells, width)."""
    group = len(q) // len(k)
    scores = np.einsum("hrd,hcd->hrc", q, k.repeat(group, 0)) / np.sqrt(q.shape[-1])
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    places = -np.arange(k.shape[1])[::-1] / 64.0
    scores = np.where(hidden, -np.inf, scores + slopes[:, None, None] * places)
    if sinks is not None:
        scores = np.concatenate([scores, np.broadcast_to(sinks[:, None, None], (*scores.shape[:2], 1))], -1)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("hrc,hcd->rhd", weights[..., : k.shape[1]], v.repeat(group, 0))


def check(
    shape: Shape,
    *,
    kinds: tuple[gguf.GGMLQuantizationType, gguf.GGMLQuantizationType] = (F16, F16),
    threads: int = 2,
    bias: float = 0.0,
    softcap: float = 0.0,
    with_sinks: bool = False,
) -> None:
    random = np.random.default_rng(shape.rows * 1000 + shape.cells)
    q = random.normal(size=(shape.heads, shape.rows, shape.width)).astype(np.float32) * 3
    k = random.normal(size=(shape.kv_heads, shape.cells, shape.width)).astype(np.float32)
    v = random.normal(size=(shape.kv_heads, shape.cells, shape.value_width)).astype(np.float32)
    k, v = (gguf.dequantize(gguf.quantize(x, kind), kind) for x, kind in zip((k, v), kinds, strict=True))
    hidden = hidden_cells(shape, random)
    places = -np.arange(shape.cells)[::-1] / 64.0 if bias else np.zeros(shape.cells)
    mask = np.where(hidden, -np.inf, places.astype(np.float16))
    sinks = random.normal(size=shape.heads).astype(np.float32) * 3 if with_sinks else None
    slopes = np.array([2.0 ** (-bias * (head + 1) / shape.heads) for head in range(shape.heads)])
    wanted = expected(q, k, v, hidden, slopes if bias else np.zeros(shape.heads), softcap, sinks)

    ggml = Ggml()
    inputs = [ggml.tensor(values[None], kind) for values, kind in ((q, F32), (k, kinds[0]), (v, kinds[1]))]
    found = attention(
        ggml,
        [*inputs, ggml.tensor(mask[None, None], F16)],
        ggml.tensor(sinks, F32) if sinks is not None else None,
        (1 / np.sqrt(shape.width), bias, softcap),
        wanted.shape,
        threads,
    )
    # Rows that are computed one by one add up half floats, as llama.cpp does. Where all ways are its own, queries of
    # quantised keys are rounded too.
    is_rounded = not is_ours(ggml) and gguf.GGML_QUANT_SIZES[kinds[0]][0] > 1
    ggml.close()
    np.testing.assert_allclose(found, wanted, atol=0.1 if is_rounded else 2e-2, rtol=1e-2)


def is_ours(ggml: Ggml) -> bool:
    """Whether the processor has the vectors that our attention is written for; else llama.cpp's is used."""
    return bool(ggml.cpu.ggml_cpu_has_sse3() or ggml.cpu.ggml_cpu_has_neon())


@drawn_grid(rows=[1, 2, 8, 23, 24, 40, 63, 64, 71, 130, 300], sequences=[1, 5])
def test_rows_of_any_number(rows: int, sequences: int) -> None:
    check(Shape(rows, 768, sequences=sequences))


@drawn_grid(cells=[1, 64, 100, 256, 511, 512, 1000], rows=[1, 3, 70])
def test_cells_of_any_number(rows: int, cells: int) -> None:
    check(Shape(rows, max(cells, rows)))


@drawn_grid(
    heads=[
        (4, 4, 64, 64),
        (8, 1, 80, 80),
        (3, 1, 128, 128),
        (71, 1, 64, 64),
        (4, 2, 96, 40),
        (4, 1, 576, 512),
    ],
    rows=[1, 5, 33, 100],
)
def test_heads_of_any_shape(heads: tuple[int, int, int, int], rows: int) -> None:
    check(Shape(rows, 640, *heads, sequences=2))


@drawn_grid(kinds=[(F32, F32), (BF16, BF16), (Q8_0, Q8_0), (Q4_0, Q4_0), (Q8_0, F16)], rows=[1, 4, 48, 90])
def test_caches_of_any_type(
    kinds: tuple[gguf.GGMLQuantizationType, gguf.GGMLQuantizationType], rows: int
) -> None:
    check(Shape(rows, 576, sequences=3), kinds=kinds)


@drawn_grid(rows=[1, 6, 100], threads=[1, 3, 60])
def test_threads_of_any_number(rows: int, threads: int) -> None:
    check(Shape(rows, 512, sequences=2), threads=threads)


@drawn_grid(
    rows=[1, 6, 30, 100],
    options=[{"softcap": 5.0}, {"with_sinks": True}, {"bias": 8.0}, {"softcap": 5.0, "with_sinks": True}],
)
def test_what_models_add_to_scores(options: dict[str, Any], rows: int) -> None:
    check(Shape(rows, 700, heads=8, sequences=2), **options)


def test_a_row_that_sees_nothing_is_zero() -> None:
    ggml = Ggml()
    tensors = [
        ggml.tensor(np.ones((1, heads, cells, 64)), kind)
        for heads, cells, kind in ((4, 2, F32), (2, 512, F16), (2, 512, F16))
    ]
    mask = np.zeros((1, 1, 2, 512))
    mask[0, 0, 1] = -np.inf
    found = attention(ggml, [*tensors, ggml.tensor(mask, F16)], None, (0.125, 0.0, 0.0), (2, 4, 64), 2)
    ggml.close()
    np.testing.assert_allclose(found[0], 1.0, atol=1e-3)
    assert not found[1].any()


@pytest.mark.parametrize("rows", [1, 5])
def test_cells_of_others_may_hold_anything(rows: int) -> None:
    ggml = Ggml()
    keys, mask = np.ones((1, 2, 512, 64)), np.zeros((1, 1, rows, 512))
    keys[:, :, 100:120] = np.inf
    mask[..., 100:120] = -np.inf
    queries = ggml.tensor(np.ones((1, 4, rows, 64)), F32)
    cells = [ggml.tensor(keys, F16), ggml.tensor(keys, F16)]
    found = attention(
        ggml, [queries, *cells, ggml.tensor(mask, F16)], None, (0.125, 0.0, 0.0), (rows, 4, 64), 2
    )
    ggml.close()
    np.testing.assert_allclose(found, 1.0, atol=1e-3)


@dataclass(frozen=True)
class Cache:
    """Sequences of one cache. Some cells are shared by all (a common prefix), the others belong to one each."""

    shape: Shape
    kind: gguf.GGMLQuantizationType
    shared: int
    window: int | None
    bias: float
    softcap: float
    with_sinks: bool

    def places(self) -> NDArray[np.int64]:
        """(sequences, own cells): the places in its sequence."""
        return self.shared + np.arange(self.own)[None].repeat(self.shape.sequences, 0)

    @property
    def own(self) -> int:
        return (self.shape.cells - self.shared) // self.shape.sequences


@functools.cache
def drawn_values(cache: Cache) -> tuple[Array, Array, Array, Array | None]:
    """Keys and values of each cell, queries of each place of each sequence, and sinks."""
    shape = cache.shape
    random = np.random.default_rng(7)
    total = cache.shared + shape.sequences * cache.own
    keys, values = (random.normal(size=(1, shape.kv_heads, total, shape.width)) for _ in range(2))
    queries = random.normal(size=(shape.sequences, cache.shared + cache.own, shape.heads, shape.width)) * 2
    return keys, values, queries, random.normal(size=shape.heads) if cache.with_sinks else None


def attended(cache: Cache, rows: Sequence[tuple[int, int]], cells: NDArray[np.int64], threads: int) -> Array:
    """Attention of rows, each the place of a sequence's token, with the cells in this order; -1: a cell of nobody."""
    shape = cache.shape
    keys, values, queries, sinks = drawn_values(cache)
    owner = np.concatenate([np.full(cache.shared, -1), np.arange(shape.sequences).repeat(cache.own)])
    place = np.concatenate([np.arange(cache.shared), cache.places().ravel()])
    mask = np.full((len(rows), len(cells)), -np.inf)
    used = cells >= 0
    for row, (sequence, position) in enumerate(rows):
        distance = position - place[cells]
        sees = used & np.isin(owner[cells], [-1, sequence]) & (distance >= 0)
        if cache.window is not None:
            sees &= distance < cache.window
        mask[row, sees] = -distance[sees] if cache.bias else 0.0
    ggml = Ggml()
    masked = ggml.tensor(mask[None, None], F16)
    ggml.order_cells(masked, np.where(used, place[cells], np.iinfo(np.int32).max))
    asked = np.stack([queries[sequence, position] for sequence, position in rows], 1)[None]
    stored = [ggml.tensor(x[:, :, cells], cache.kind) for x in (keys, values)]
    found = attention(
        ggml,
        [ggml.tensor(asked, F32), *stored, masked],
        ggml.tensor(sinks, F32) if sinks is not None else None,
        (1 / np.sqrt(shape.width), cache.bias, cache.softcap),
        (len(rows), shape.heads, shape.width),
        threads,
    )
    ggml.close()
    return found


CACHES = [
    Cache(Shape(0, 900, 4, 4, 32, 32, 1), F16, 0, None, 0.0, 0.0, False),
    Cache(Shape(0, 1400, 14, 2, 64, 64, 3), F16, 300, None, 0.0, 0.0, False),
    Cache(Shape(0, 1300, 6, 6, 32, 32, 4), Q8_0, 0, 200, 0.0, 5.0, True),
    Cache(Shape(0, 1000, 8, 1, 80, 80, 2), F32, 400, None, 0.0, 0.0, True),
    Cache(Shape(0, 700, 4, 4, 64, 64, 2), BF16, 100, 300, 0.0, 0.0, False),
    Cache(Shape(0, 600, 4, 2, 64, 64, 2), F16, 0, None, 8.0, 0.0, False),
]


@drawn_grid(cache=range(len(CACHES)), threads=[1, 2, 3, 5, 8], rows=[2, 5, 23, 24, 40, 100])
def test_a_row_depends_on_its_own_cells_and_nothing_else(cache: int, threads: int, rows: int) -> None:
    """To the bit: alone or in a batch, by any number of threads, wherever its cells lie."""
    ggml = Ggml()
    has_ours = is_ours(ggml)
    ggml.close()
    if not has_ours:
        pytest.skip("attention is llama.cpp's on this processor")
    drawn, case = np.random.default_rng([cache, threads, rows]), CACHES[cache]
    last, total = case.shared + case.own, case.shared + case.shape.sequences * case.own
    sequences = np.sort(drawn.integers(0, case.shape.sequences, rows))
    batch = [(int(s), int(drawn.integers(max(0, last - rows), last))) for s in sequences]
    cells = drawn.permutation(np.concatenate([np.arange(total), np.full(150, -1)]))
    together = attended(case, batch, cells, threads)
    for row in {0, rows // 2, rows - 1}:
        alone = attended(case, [batch[row]], np.arange(total), 1)
        np.testing.assert_array_equal(together[row], alone[0])
        divided = attended(case, [batch[row]], cells, threads)
        np.testing.assert_array_equal(divided, alone)

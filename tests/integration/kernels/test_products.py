"""Products of quantised weights, as they are compiled here (``kernels/products.h``), beside NumPy."""

# ggml has no stubs.
# pyright: basic

from __future__ import annotations

import ctypes
import mmap
import os
import re
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.drawn_grid import drawn_grid
from tests.support.gguf.ggml import Array, Ggml, is_multiplied_here

pytestmark = pytest.mark.integration

Kind = gguf.GGMLQuantizationType
KINDS = [
    *(Kind.Q4_0, Kind.Q5_0, Kind.Q8_0, Kind.IQ4_NL, Kind.MXFP4),
    *(Kind.Q2_K, Kind.Q3_K, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K, Kind.IQ4_XS),
    *(Kind.IQ2_XXS, Kind.IQ2_XS, Kind.IQ2_S, Kind.IQ3_XXS, Kind.IQ3_S),
]
SCALES = {
    Kind.Q2_K: slice(80, 84),
    Kind.Q3_K: slice(108, 110),
    Kind.Q4_K: slice(0, 4),
    Kind.Q5_K: slice(0, 4),
    Kind.Q6_K: slice(208, 210),
}
"""Bytes of a block that are half floats; the first two in other types."""


def weights(kind: Kind, rows: int, width: int) -> tuple[NDArray[np.uint8], Array]:
    """Stored and read. Scales are powers of two near 1; all other bits are random."""
    random = np.random.default_rng(rows * width)
    block, size = gguf.GGML_QUANT_SIZES[kind]
    data = random.integers(0, 256, (rows, width // block, size), dtype=np.uint8)
    place = SCALES.get(kind, slice(0, 2))
    if kind == Kind.MXFP4:  # a byte is the power of two
        data[..., 0] = random.integers(125, 132, data.shape[:2])
    else:
        scales = 2.0 ** random.integers(-3, 4, (rows, width // block, (place.stop - place.start) // 2))
        data[..., place] = scales.astype(np.float16).view(np.uint8)
    data = data.reshape(rows, -1)
    return data, gguf.dequantize(data, kind)


def activations(tokens: int, width: int) -> Array:
    """What a block of 8 bits holds exactly."""
    random = np.random.default_rng(tokens + width)
    values = random.integers(-127, 128, (tokens, width)).astype(np.float32)
    values[:, ::32] = 127
    return values * (2.0 ** random.integers(-4, 5, (tokens, 1))).astype(np.float32)


def product(kind: Kind, stored: NDArray[np.uint8], values: Array, threads: int = 2) -> Array:
    """(…, rows) of activations (…, width)."""
    ggml = Ggml()
    shape = (len(stored), values.shape[-1])
    inputs = ggml.stored(stored, shape, kind), ggml.tensor(values, Kind.F32)
    found = ggml.computed(ggml.operation("mul_mat", *inputs), (*values.shape[:-1], len(stored)), threads)
    ggml.close()
    return found


def check(kind: Kind, rows: int, width: int, tokens: int, threads: int = 2) -> None:
    stored, read = weights(kind, rows, width)
    values = activations(tokens, width)
    wanted = values.astype(np.float64) @ read.astype(np.float64).T
    bound = np.abs(values) @ np.abs(read).T
    assert (np.abs(product(kind, stored, values, threads) - wanted) <= 2e-6 * bound).all()


def test_all_types_that_are_multiplied_here_are_tested() -> None:
    header = Path(__file__).parents[3] / "kernels" / "products.h"
    assert set(re.findall(r"case GGML_TYPE_(\w+):", header.read_text())) == {kind.name for kind in KINDS}


@drawn_grid(kind=KINDS, tokens=[1, 2, 3, 4, 5, 8, 16, 17, 23, 66], rows=[1, 7, 8, 9, 16, 17, 203])
def test_rows_and_tokens_of_any_number(kind: Kind, tokens: int, rows: int) -> None:
    check(kind, rows, 256, tokens)


@drawn_grid(kind=KINDS, tokens=[1, 6], blocks=[1, 3, 28])
def test_widths_of_any_number_of_blocks(kind: Kind, tokens: int, blocks: int) -> None:
    check(kind, 40, blocks * gguf.GGML_QUANT_SIZES[kind][0], tokens)


@drawn_grid(kind=KINDS, tokens=[1, 9], threads=[1, 3, 40], rows=[16, 1000])
def test_threads_of_any_number(kind: Kind, tokens: int, threads: int, rows: int) -> None:
    check(kind, rows, 256, tokens, threads)


def test_scales_of_any_power_of_two() -> None:
    """A byte each; the smallest are subnormal numbers. All other bits of the values are zero or few."""
    stored = np.full((128, 17), 0x22, np.uint8)
    stored[:, 0] = np.arange(128)
    values = np.zeros((1, 32), np.float32)
    values[0, :2] = 127
    for tokens in (1, 3, 20):
        found = product(Kind.MXFP4, stored, np.repeat(values, tokens, axis=0))
        wanted = 508 * np.ldexp(np.float32(1), np.arange(128) - 128)
        np.testing.assert_array_equal(found, np.repeat(wanted[None], tokens, axis=0))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_tokens_in_several_dimensions(kind: Kind) -> None:
    stored, read = weights(kind, 24, 256)
    values = activations(30, 256)
    found = product(kind, stored, values.reshape(2, 3, 5, 256))
    np.testing.assert_allclose(found, (values @ read.T).reshape(2, 3, 5, 24), rtol=1e-5, atol=1)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_rows_of_a_larger_matrix(kind: Kind) -> None:
    """Weights whose rows are wider than what is multiplied, as a view has them."""
    stored, read = weights(kind, 24, 512)
    values = activations(5, 256)
    ggml = Ggml()
    whole = ggml.stored(stored, (24, 512), kind)
    half = ggml.operation(
        "view_2d", whole, *map(ctypes.c_int64, (256, 24)), *map(ctypes.c_size_t, (stored.shape[1], 0))
    )
    result = ggml.operation("mul_mat", half, ggml.tensor(values, Kind.F32))
    found = ggml.computed(result, (5, 24), 2)
    ggml.close()
    np.testing.assert_allclose(found, values @ read[:, :256].T, rtol=1e-5, atol=1)


def skip_unless_ours(kind: Kind) -> None:
    if not is_multiplied_here(kind):
        pytest.skip("products of this type are llama.cpp's on this processor")


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_token_is_the_same_alone_and_beside_others(kind: Kind) -> None:
    skip_unless_ours(kind)
    stored, _ = weights(kind, 72, 768)
    values = np.random.default_rng(1).normal(size=(21, 768)).astype(np.float32)
    together = product(kind, stored, values)
    for tokens in (1, 2, 3, 4, 7, 16):
        np.testing.assert_array_equal(product(kind, stored, values[:tokens]), together[:tokens])


def experts_product(
    kind: Kind, stored: NDArray[np.uint8], values: Array, chosen: NDArray[np.int32], threads: int
) -> Array:
    """(tokens, choices, rows) of weights (experts, rows, …), activations (tokens, 1 or choices, width), and choices."""
    ggml = Ggml()
    shape = (*stored.shape[:2], values.shape[-1])
    inputs = ggml.mapped(stored, shape, kind), ggml.tensor(values, Kind.F32)
    ids = ggml.stored(chosen, chosen.shape, Kind.I32)
    found = ggml.computed(
        ggml.operation("mul_mat_id", *inputs, ids), (*chosen.shape, stored.shape[1]), threads
    )
    ggml.close()
    return found


def choices(tokens: int, experts: int, count: int) -> NDArray[np.int32]:
    """Different experts of each token; the first expert is chosen by most tokens."""
    random = np.random.default_rng(tokens + experts)
    drawn = np.argsort(random.random((tokens, experts)) - (np.arange(experts) == 0), axis=1)
    return np.ascontiguousarray(drawn[:, :count].astype(np.int32))


@drawn_grid(
    kind=KINDS,
    tokens=[1, 2, 3, 17, 43],
    rows=[1, 17, 203],
    experts=[1, 5],
    count=[1, 2],
    blocks=[1, 3],
    threads=[1, 2, 3, 4],
    is_shared=[True, False],
)
def test_experts_of_any_number(
    kind: Kind, tokens: int, rows: int, experts: int, count: int, blocks: int, threads: int, is_shared: bool
) -> None:
    """`is_shared`: a token's experts read the same row of activations (up, gate), or each its own (down)."""
    count = min(count, experts)
    width = blocks * gguf.GGML_QUANT_SIZES[kind][0]
    stored, read = weights(kind, experts * rows, width)
    stored, read = stored.reshape(experts, rows, -1), read.reshape(experts, rows, width)
    per_token = 1 if is_shared else count
    values = activations(tokens * per_token, width).reshape(tokens, per_token, width)
    chosen = choices(tokens, experts, count)
    found = experts_product(kind, stored, values, chosen, threads)
    wanted = np.einsum("tcrw,tcw->tcr", read[chosen], np.broadcast_to(values, (tokens, count, width)))
    bound = np.einsum(
        "tcrw,tcw->tcr", np.abs(read)[chosen], np.broadcast_to(np.abs(values), (tokens, count, width))
    )
    assert (np.abs(found - wanted) <= 4e-6 * bound).all()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_token_of_experts_is_the_same_alone_and_beside_others(kind: Kind) -> None:
    """And the same as with the expert's matrix by itself."""
    skip_unless_ours(kind)
    stored, _ = weights(kind, 4 * 40, 768)
    stored = stored.reshape(4, 40, -1)
    values = np.random.default_rng(1).normal(size=(37, 1, 768)).astype(np.float32)
    chosen = choices(37, 4, 2)
    together = experts_product(kind, stored, values, chosen, 3)
    for tokens in (1, 2, 3, 7, 20):
        few = experts_product(kind, stored, values[:tokens], chosen[:tokens], 1)
        np.testing.assert_array_equal(few, together[:tokens])
    for expert in range(4):
        of_expert = product(kind, stored[expert], values[:, 0])
        np.testing.assert_array_equal(together[chosen == expert], of_expert[(chosen == expert).any(axis=1)])


def test_experts_of_a_file_that_is_not_in_memory(tmp_path: Path) -> None:
    """They are read from the disk, ahead after the first operation that waited for it."""
    stored, _ = weights(Kind.Q8_0, 40 * 72, 512)
    (tmp_path / "experts").write_bytes(stored.tobytes())
    stored = stored.reshape(40, 72, -1)
    with (tmp_path / "experts").open("rb") as file:
        os.fsync(file.fileno())
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        mapped = np.frombuffer(pages, np.uint8).reshape(stored.shape)
        for tokens in (1, 3, 1, 30):
            if sys.platform == "linux":
                pages.madvise(mmap.MADV_DONTNEED)
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            values, chosen = activations(tokens, 512)[:, None], choices(tokens, 40, 12)
            found = experts_product(Kind.Q8_0, mapped, values, chosen, 2)
            np.testing.assert_array_equal(found, experts_product(Kind.Q8_0, stored, values, chosen, 2))


@drawn_grid(
    kind=[Kind.F32, Kind.F16, Kind.BF16],
    rows=[1, 4, 7, 16, 72, 160],
    width=[32, 40, 256, 768],
    threads=[1, 2, 5],
)
def test_a_token_is_the_same_alone_and_beside_others_with_weights_of_floats(
    kind: Kind, rows: int, width: int, threads: int
) -> None:
    ggml = Ggml()
    has_avx = ggml.cpu.ggml_cpu_has_avx2()
    ggml.close()
    if not has_avx:
        pytest.skip("products of floats are llama.cpp's on this processor")
    random = np.random.default_rng(rows * width)
    read = random.normal(size=(rows, width)).astype(np.float32)
    values = random.normal(size=(33, width)).astype(np.float32)
    together = product(kind, gguf.quantize(read, kind), values, threads)
    np.testing.assert_allclose(together, values @ read.T, rtol=1e-2, atol=0.5)
    for tokens in (1, 2, 3, 5, 16, 24):
        np.testing.assert_array_equal(
            product(kind, gguf.quantize(read, kind), values[:tokens]), together[:tokens]
        )

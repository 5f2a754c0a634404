"""Gated delta nets and the convolution before them (``kernels/delta_net.h``), beside the same in NumPy."""

# ggml has no stubs.
# pyright: basic

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.drawn_grid import drawn_grid
from tests.support.gguf.ggml import Array, Ggml

pytestmark = pytest.mark.integration

F32 = gguf.GGMLQuantizationType.F32


@dataclass(frozen=True)
class Net:
    """Inputs of the operation: (sequences, tokens, heads, …), and the state (sequences, heads, values, keys)."""

    queries: Array
    keys: Array
    values: Array
    gates: Array
    betas: Array
    state: Array

    @classmethod
    def drawn(
        cls,
        tokens: int,
        *,
        width: int = 128,
        heads: tuple[int, int] = (4, 2),
        sequences: int = 1,
        by_key: bool = False,
    ) -> Net:
        """heads: of values, and of keys and queries, which several of values share."""
        random = np.random.default_rng([tokens, width, *heads, sequences])
        of_values, of_keys = heads

        def normal(*shape: int) -> Array:
            return random.normal(size=(sequences, tokens, *shape)).astype(np.float32)

        keys = normal(of_keys, width)
        return cls(
            normal(of_keys, width),
            keys / np.linalg.norm(keys, axis=-1, keepdims=True),
            normal(of_values, width),
            -np.abs(normal(of_values, width if by_key else 1)) / 8,
            1 / (1 + np.exp(-normal(of_values, 1))),
            random.normal(size=(sequences, of_values, width, width)).astype(np.float32),
        )

    @property
    def inputs(self) -> list[Array]:
        return [self.queries, self.keys, self.values, self.gates, self.betas, self.state]

    def part(self, tokens: slice, sequence: int, state: Array) -> Net:
        """Some tokens of a sequence, from a state on."""
        queries, keys, values, gates, betas = (x[sequence : sequence + 1, tokens] for x in self.inputs[:-1])
        return Net(queries, keys, values, gates, betas, state)


def answered(ggml: Ggml, net: Net, state: ctypes.c_void_p, kept: int) -> ctypes.c_void_p:
    """The operation from that state on, to be computed."""
    sequences, tokens, heads, width = net.values.shape
    rows = [ggml.tensor(x, F32) for x in net.inputs[:-1]]
    # Values lie between others, as the parts of a convolution's result do.
    among = ggml.tensor(np.concatenate([np.full_like(net.values, np.nan), net.values], 2), F32)
    strides = [4 * width * n for n in (1, 2 * heads, 2 * heads * tokens)]
    rows[2] = view(ggml, among, (width, heads, tokens, sequences), strides, 4 * width * heads)
    return ggml.operation("gated_delta_net", *rows, state, ctypes.c_int64(kept))


def view(
    ggml: Ggml, tensor: ctypes.c_void_p, sizes: Sequence[int], strides: Sequence[int], offset: int
) -> ctypes.c_void_p:
    """Sizes and strides in ggml's order, the latter and the offset in bytes."""
    name = f"view_{len(sizes)}d"
    return ggml.operation(
        name, tensor, *map(ctypes.c_int64, sizes), *map(ctypes.c_size_t, (*strides, offset))
    )


def computed(net: Net, threads: int = 2, kept: int = 1) -> tuple[Array, Array]:
    """The answers, and the states after the last tokens, the newest first."""
    ggml = Ggml()
    result = answered(ggml, net, ggml.tensor(net.state, F32), kept)
    answers = net.values.size
    found = ggml.computed(result, (answers + kept * net.state.size,), threads)
    ggml.close()
    states = found[answers:].reshape(kept, *net.state.shape)
    return found[:answers].reshape(net.values.shape), states[: net.values.shape[1]]


def expected(net: Net, kept: int = 1) -> tuple[Array, Array]:
    """The same by the rule, in double precision."""
    queries, keys, values, gates, betas, state = (x.astype(np.float64) for x in net.inputs)
    shared = values.shape[2] // keys.shape[2]
    queries, keys = (np.tile(x, (1, 1, shared, 1)) for x in (queries, keys))
    answers, states = np.empty_like(values), []
    for t in range(values.shape[1]):
        state = state * np.exp(gates[:, t])[:, :, None, :]
        change = (values[:, t] - np.einsum("shvk,shk->shv", state, keys[:, t])) * betas[:, t]
        state = state + np.einsum("shv,shk->shvk", change, keys[:, t])
        answers[:, t] = np.einsum("shvk,shk->shv", state, queries[:, t]) / np.sqrt(values.shape[-1])
        states.insert(0, state)
    return answers, np.stack(states[:kept])


def check(net: Net, *, threads: int = 2, kept: int = 1) -> None:
    for found, wanted in zip(computed(net, threads, kept), expected(net, kept), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


@drawn_grid(tokens=[1, 2, 5, 6, 7, 33, 130], sequences=[1, 3], by_key=[False, True])
def test_tokens_of_any_number(tokens: int, sequences: int, by_key: bool) -> None:
    check(Net.drawn(tokens, sequences=sequences, by_key=by_key))


@drawn_grid(width=[4, 16, 20, 32, 48, 64, 96, 128, 256, 288], tokens=[1, 9], heads=[(1, 1), (6, 3), (5, 5)])
def test_heads_of_any_size(width: int, tokens: int, heads: tuple[int, int]) -> None:
    check(Net.drawn(tokens, width=width, heads=heads))


@drawn_grid(kept=[1, 2, 8], tokens=[1, 4, 5, 20], by_key=[False, True])
def test_the_last_states_are_kept(kept: int, tokens: int, by_key: bool) -> None:
    check(Net.drawn(tokens, sequences=2, by_key=by_key), kept=kept)


@drawn_grid(threads=[1, 3, 40], tokens=[1, 12])
def test_threads_of_any_number(threads: int, tokens: int) -> None:
    check(Net.drawn(tokens), threads=threads)


@drawn_grid(width=[16, 32, 64, 128], tokens=[2, 6, 40], threads=[1, 2, 5], by_key=[False, True])
def test_a_token_depends_on_its_own_sequence_and_nothing_else(
    width: int, tokens: int, threads: int, by_key: bool
) -> None:
    """To the bit: a prompt at once, in pieces or token by token, alone or beside others, by any number of threads."""
    net = Net.drawn(tokens, width=width, sequences=3, by_key=by_key)
    answers, (states,) = computed(net, threads)
    for pieces in ([1] * tokens, [tokens // 2, tokens - tokens // 2]):
        state, begin = net.state[1:2], 0
        for piece in pieces:
            part = net.part(slice(begin, begin + piece), 1, state)
            found, (state,) = computed(part, 1)
            np.testing.assert_array_equal(found[0], answers[1, begin : begin + piece])
            begin += piece
        np.testing.assert_array_equal(state[0], states[1])


@drawn_grid(
    sources=[(1, 2), (2, 1), (3, 2), (1, 1)],
    kept=[1, 3],
    tokens=[1, 2, 9],
    threads=[1, 3],
    is_read=[False, True],
)
def test_states_in_a_cache_are_updated(
    sources: tuple[int, int], kept: int, tokens: int, threads: int, is_read: bool
) -> None:
    """As libllama does: rows of a cache come to the operation, and go to rows 1 and 2 of each age.

    sources: where the rows come from. is_read: whether something else needs them, too.
    """
    net = Net.drawn(tokens, width=64, sequences=2)
    written, size = min(kept, tokens), net.state[0].size
    cache = np.random.default_rng(3).normal(size=(kept, 4, size)).astype(np.float32)
    net = replace(net, state=cache[0, list(sources)].reshape(net.state.shape))
    ggml = Ggml()
    stored = ggml.tensor(cache.reshape(-1, size), F32)
    numbers = ggml.stored(np.array(sources, np.int32), (2,), gguf.GGMLQuantizationType.I32)
    rows = ggml.operation("get_rows", stored, numbers)
    sizes = map(ctypes.c_int64, reversed(net.state.shape))
    result = answered(ggml, net, ggml.operation("reshape_4d", rows, *sizes), kept)
    width, heads = net.values.shape[-1], net.values.shape[2]
    row, age = 4 * size, 4 * 4 * size
    new = view(ggml, result, (size, 2, written), (row, 2 * row), 4 * net.values.size)
    place = view(ggml, stored, (size, 2, written), (row, age), row)
    first = [ggml.operation("cpy", new, place)]
    also = ggml.operation("scale", rows, ctypes.c_float(1.0)) if is_read else None
    if also:
        first.insert(0, also)
    answers = view(
        ggml, result, (width, heads, tokens, 2), [4 * width * n for n in (1, heads, heads * tokens)], 0
    )
    found = ggml.computed(ggml.operation("cont", answers), net.values.shape, threads, first=first)
    wanted, states = expected(net, kept)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)
    if also:
        np.testing.assert_array_equal(ggml.values(also, net.state.shape), net.state)
    cache[:written, 1:3] = states.reshape(written, 2, size)
    np.testing.assert_allclose(ggml.values(stored, cache.shape), cache, rtol=1e-3, atol=1e-4)
    ggml.close()


def convolved(inputs: Array, weights: Array, threads: int) -> Array:
    """inputs: (sequences, channels, tokens and the ones before); the result (sequences, tokens, channels)."""
    ggml = Ggml()
    tokens = inputs.shape[2] - weights.shape[1] + 1
    result = ggml.operation("ssm_conv", ggml.tensor(inputs, F32), ggml.tensor(weights, F32))
    found = ggml.computed(result, (inputs.shape[0], tokens, inputs.shape[1]), threads)
    ggml.close()
    return found


@drawn_grid(
    channels=[1, 8, 40, 64, 320],
    kernel=[1, 3, 4, 8, 9],
    tokens=[1, 5, 63, 64, 65, 140],
    sequences=[1, 3],
    threads=[1, 2, 7],
)
def test_convolutions_of_any_size(
    channels: int, kernel: int, tokens: int, sequences: int, threads: int
) -> None:
    random = np.random.default_rng([channels, kernel, tokens])
    inputs = random.normal(size=(sequences, channels, tokens + kernel - 1)).astype(np.float32)
    weights = random.normal(size=(channels, kernel)).astype(np.float32)
    found = convolved(inputs, weights, threads)
    windows = np.lib.stride_tricks.sliding_window_view(inputs, kernel, 2)
    wanted = np.einsum("sctk,ck->stc", windows.astype(np.float64), weights)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    alone = convolved(inputs[-1:, :, -kernel:], weights, 1)
    np.testing.assert_array_equal(found[-1, -1], alone[0, 0])


@drawn_grid(
    rows=[1, 7, 64, 65, 200], old=[1, 3], tokens=[1, 2, 7, 8, 9, 70], sequences=[1, 3], threads=[1, 2, 9]
)
def test_tokens_are_appended_to_rows_of_channels(
    rows: int, old: int, tokens: int, sequences: int, threads: int
) -> None:
    random = np.random.default_rng([rows, old, tokens])
    before: NDArray[Any] = random.normal(size=(sequences, rows, old)).astype(np.float32)
    new: NDArray[Any] = random.normal(size=(sequences, tokens, rows)).astype(np.float32)
    ggml = Ggml()
    turned = ggml.operation("transpose", ggml.tensor(new, F32))
    result = ggml.operation("concat", ggml.tensor(before, F32), turned, 0)
    found = ggml.computed(result, (sequences, rows, old + tokens), threads)
    ggml.close()
    np.testing.assert_array_equal(found, np.concatenate([before, new.transpose(0, 2, 1)], 2))

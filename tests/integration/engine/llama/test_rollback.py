"""A recurrent sequence that drops its last tokens, in a context of a real model."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from jan_serve.engine.llama import backend
from jan_serve.engine.llama.context import DECODE_OK, Batch, Floats, LlamaContext
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.engine.llama.threads import ThreadPool
from jan_serve.engine.tokens import Tokens

pytestmark = pytest.mark.integration

TOKENS = np.arange(300, 340, dtype=np.int32)


@contextmanager
def context_of(path: Path) -> Generator[LlamaContext]:
    backend.start()
    model = LlamaModel(str(path))
    context = LlamaContext(
        model, n_ctx=256, n_batch=64, n_ubatch=64, n_seq_max=4, threads=ThreadPool(1), flash_attn="off",
        type_k="f32", type_v="f32", max_rollback=4,
    )  # fmt: skip
    yield context
    context.close()
    model.close()


def read(context: LlamaContext, tokens: Tokens, pos: int, seq_id: int = 0) -> Floats:
    """The logits after the last one."""
    batch = Batch(64)
    index = batch.add(tokens, pos, seq_id, outputs="last")
    assert context.decode(batch) == DECODE_OK
    return context.logits(index).copy()


@pytest.mark.parametrize("way", ["goes on", "copied", "saved"])
def test_it_goes_on_from_the_state_before_them(exact_hybrid: Path, way: str) -> None:
    with context_of(exact_hybrid) as context:
        for kept in (0, 1, 3):
            length = 30 + kept
            for seq_id in range(4):
                context.remove(seq_id)
            expected = read(context, TOKENS[: length + 1], 0, seq_id=3)
            read(context, TOKENS[:29], 0)
            read(context, TOKENS[29:34], 29)
            assert context.truncate(0, length)
            target = 0
            if way == "copied":
                context.copy_all(0, 1)
                target = 1
            elif way == "saved":
                data = context.save_sequence(0)
                context.remove(0)
                assert context.restore_sequence(0, data, length)
            found = read(context, TOKENS[length : length + 1], length, seq_id=target)
            np.testing.assert_allclose(found, expected, atol=1e-3)


def test_no_further_than_its_states(exact_hybrid: Path, exact_recurrent: Path) -> None:
    with context_of(exact_hybrid) as context:
        read(context, TOKENS, 0)
        assert not context.truncate(0, len(TOKENS) - 5)
        assert context.truncate(0, len(TOKENS) - 4)
    with context_of(exact_recurrent) as context:
        assert context.max_rollback == 0

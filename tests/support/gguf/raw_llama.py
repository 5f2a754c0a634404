"""llama.cpp without an engine, one sequence at a time: what the engine's numbers are compared with."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from jan_serve.engine.llama.context import DECODE_OK, Batch, Floats, LlamaContext
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.engine.llama.threads import ThreadPool


class RawLlama:
    """Every call computes its whole sequence in a new context."""

    def __init__(self, path: Path) -> None:
        self.model = LlamaModel(str(path))

    def tokens(self, text: str, *, parse_special: bool = True) -> list[int]:
        return self.model.vocab.tokenize(text, add_special=False, parse_special=parse_special)

    def scores(self, tokens: Sequence[int], outputs: int) -> Floats:
        """The outputs of the scoring head."""
        context, _ = self._decoded(tokens, pooling="rank")
        scores = context.sequence_embedding(0, outputs)
        context.close()
        return scores

    def log_probabilities(self, tokens: Sequence[int]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        """After each token, those of the next one. Shape (tokens, vocabulary)."""
        context, last = self._decoded(tokens)
        logits = np.stack([context.logits(index) for index in range(last + 1)]).astype(np.float64)
        context.close()
        logits -= logits.max(axis=1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))

    def path_log_probability(self, prompt: Sequence[int], path: Sequence[int]) -> float:
        """The log-probability of the tokens of `path` after the prompt."""
        rows = self.log_probabilities([*prompt, *path])
        return sum(float(rows[len(prompt) - 1 + offset, token]) for offset, token in enumerate(path))

    def _decoded(self, tokens: Sequence[int], pooling: str | None = None) -> tuple[LlamaContext, int]:
        size = max(32, len(tokens))
        context = LlamaContext(
            self.model,
            n_ctx=size,
            n_batch=size,
            n_ubatch=size,
            n_seq_max=1,
            threads=ThreadPool(1),
            embeddings=pooling is not None,
            pooling=pooling,
            flash_attn="off",
            type_k="f32",
            type_v="f32",
        )
        batch = Batch(size)
        last = batch.add(np.asarray(tokens, np.int32), 0, 0, outputs="all")
        assert context.decode(batch) == DECODE_OK
        return context, last


@contextmanager
def raw_llama(path: Path) -> Generator[RawLlama]:
    raw = RawLlama(path)
    try:
        yield raw
    finally:
        raw.model.close()

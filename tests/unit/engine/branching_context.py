"""A context without a model that keeps the tokens of sequences: each output is a function of all before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from jan_serve.engine.llama.context import Batch, LlamaContext

Floats = npt.NDArray[np.float32]
Row = tuple[int, ...]


@dataclass(eq=False)
class Cell:
    """The cell of one token. Sequences that branch share it."""

    token: int


def values_after(row: Row, size: int) -> Floats:
    """What this context computes after these tokens: a logit for each token, or scores."""
    random = np.random.default_rng([len(row), *(token + 1 for token in row)])
    return random.normal(0.0, 2.0, size).astype(np.float32)


class BranchingContext:
    """Checks what llama.cpp expects: positions without gaps, cells for all tokens, sequences in their range."""

    def __init__(self, n_ctx: int, *, n_sequences: int, n_vocab: int = 8, is_cuttable: bool = True) -> None:
        """is_cuttable: not so are the memories of recurrent models."""
        self.n_ctx = n_ctx
        self.is_cuttable = is_cuttable
        self.is_open = True
        self.decoded: list[int] = []
        self.rows: dict[int, list[Cell]] = {}
        self._n_sequences = n_sequences
        self._n_vocab = n_vocab
        self._embeds = False
        self._outputs: dict[int, Row] = {}
        self._last_of: dict[int, Row] = {}

    def compute(self, _: object, batch: Batch) -> bool:
        """Decode a batch: `Decode` of the jobs."""
        self._outputs.clear()
        self._last_of.clear()
        self.decoded.append(batch.size)
        raw: Any = batch.raw
        for index in range(batch.size):
            seq_id = int(raw.seq_id[index][0])
            assert 0 <= seq_id < self._n_sequences
            row = self.rows.setdefault(seq_id, [])
            assert raw.pos[index] == len(row), f"sequence {seq_id} has {len(row)} tokens"
            row.append(Cell(int(raw.token[index])))
            if raw.logits[index]:
                self._outputs[index] = self.tokens(seq_id)
                self._last_of[seq_id] = self.tokens(seq_id)
        assert self.num_cells <= self.n_ctx, "no cells are left"
        return True

    def interrupt(self, _: object, batch: Batch) -> bool:
        """Decode a batch and give it up: its tokens are in the memory, its outputs are not."""
        self.compute(None, batch)
        self._outputs.clear()
        self._last_of.clear()
        return False

    @property
    def num_cells(self) -> int:
        return len({id(cell) for row in self.rows.values() for cell in row})

    def tokens(self, seq_id: int) -> Row:
        return tuple(cell.token for cell in self.rows.get(seq_id, ()))

    def logits(self, index: int) -> Floats:
        return values_after(self._outputs[index], self._n_vocab)

    def set_embeddings(self, enabled: bool) -> None:
        self._embeds = enabled

    def sequence_embedding(self, seq_id: int, size: int) -> Floats:
        assert self._embeds, "the last batch has no embeddings"
        return values_after(self._last_of[seq_id], size)

    def copy_all(self, source: int, target: int) -> None:
        assert not self.rows.get(target), f"sequence {target} is in use"
        self.rows[target] = list(self.rows.get(source, ()))

    def truncate(self, seq_id: int, length: int) -> bool:
        row = self.rows.get(seq_id, [])
        if length < len(row) and not self.is_cuttable:
            return False
        del row[length:]
        return True

    def remove(self, seq_id: int) -> None:
        self.rows.pop(seq_id, None)

    def clear(self) -> None:
        self.rows.clear()

    def close(self) -> None:
        self.is_open = False


class Contexts:
    """Makes contexts, and keeps all that it made."""

    def __init__(self, *, n_sequences: int, is_cuttable: bool = True) -> None:
        self.made: list[BranchingContext] = []
        self._n_sequences = n_sequences
        self._is_cuttable = is_cuttable

    def create(self, n_ctx: int) -> LlamaContext:
        assert not any(context.is_open for context in self.made), "one at a time"
        made = BranchingContext(n_ctx, n_sequences=self._n_sequences, is_cuttable=self._is_cuttable)
        self.made.append(made)
        return cast(LlamaContext, made)

    @property
    def current(self) -> BranchingContext:
        return self.made[-1]

    def compute(self, context: object, batch: Batch) -> bool:
        assert context is self.current
        return self.current.compute(context, batch)

    def interrupt(self, context: object, batch: Batch) -> bool:
        assert context is self.current
        return self.current.interrupt(context, batch)

"""NextTokenHead drafts with the model's own head for the token after the next one (MTP).

DeepSeek-V3 and GLM-4.5 have such a head. It is a block that reads a token and the hidden state that the model had
before it. It drafts further tokens from its own hidden states. It begins with the last tokens of a prompt: reading
all of it would slow every prefill.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import numpy as np

from jan_serve.engine.drafting.draft_model import DraftModel
from jan_serve.engine.llama.context import DECODE_OK, Batch, Floats, LlamaContext
from jan_serve.engine.sequence import Sequence
from jan_serve.placement.workload import HEAD_DRAFT

WINDOW: Final = 256
"""Tokens back that are kept, at least."""


class HiddenRows:
    """Rows of positions `start` to `end`-1, the oldest of which are dropped."""

    def __init__(self, width: int) -> None:
        self.start: int = 0
        self.end: int = 0
        self._rows: Floats = np.empty((2 * WINDOW, width), np.float32)

    def append(self, position: int, rows: Floats) -> None:
        """Copy the rows from `position` on. Rows that end before it are of no use any more."""
        if position != self.end:
            self.start = self.end = position
        if len(rows) >= WINDOW:
            self.start = self.end = position + len(rows) - WINDOW
            rows = rows[-WINDOW:]
        held = self.end - self.start
        if held + len(rows) > len(self._rows):
            keep = WINDOW - len(rows)
            self._rows[:keep] = self._rows[held - keep : held].copy()
            self.start, held = self.end - keep, keep
        self._rows[held : held + len(rows)] = rows
        self.end += len(rows)

    def view(self, first: int, end: int) -> Floats:
        """Rows of positions first … end-1, all of which must be held."""
        return self._rows[first - self.start : end - self.start]


class NextTokenHead(DraftModel):
    """`observe` after each batch of the model, then `draft`. For the engine thread."""

    max_draft = HEAD_DRAFT

    def __init__(
        self,
        context: LlamaContext,
        trunk: LlamaContext,
        n_sequences: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """context: of the head, with at least the cells of `trunk`, the model's own."""
        super().__init__(context, n_sequences, trunk.n_vocab, clock)
        self._trunk = trunk
        self._width = context.model.n_embd
        self._batch = Batch(context.n_batch, self._width)
        self._hidden: dict[int, HiddenRows] = {}
        self._read: dict[int, int] = {}
        """Tokens of a sequence up to which the head has read the model's hidden states."""
        self._last: Floats = np.empty((1, self._width), np.float32)
        """The head's own hidden state of the token that it read last."""
        self._output_hidden()

    def _output_hidden(self) -> None:
        self._trunk.output_hidden()
        self._context.output_hidden()

    def resized(self, n_ctx: int, trunk: LlamaContext) -> LlamaContext:
        return self._context.resized(n_ctx, head_of=trunk)

    def become(self, context: LlamaContext) -> None:
        super().become(context)
        self._output_hidden()

    def observe(self, sequence: Sequence, index: int, count: int) -> None:
        """Keep the hidden states of the last `count` computed tokens, which are in the batch from `index` on."""
        if sequence.media:
            return
        key = id(sequence)
        if key not in self._hidden:
            self._hidden[key] = HiddenRows(self._width)
        start = sequence.num_computed - count
        self._hidden[key].append(start, self._trunk.hidden(index, index + count))

    def forget(self, sequence: Sequence) -> None:
        self._hidden.pop(id(sequence), None)
        super().forget(sequence)

    def _num_read(self, sequence: Sequence) -> int:
        return self._read.get(id(sequence), 0)

    def _drop(self, sequence: Sequence) -> None:
        self._read.pop(id(sequence), None)
        super()._drop(sequence)

    def _prefill(self, sequence: Sequence) -> Floats | None:
        """Read what is new, with the model's hidden states. The token at p needs that of p-1."""
        key, length = id(sequence), len(sequence.tokens)
        rows = self._hidden.get(key)
        if rows is None or rows.end != length - 1 or rows.start == rows.end:
            return None
        seq_id = self._sequence_id(sequence)
        if seq_id is None:
            return None
        # Always read the newest token: the draft starts with its logits.
        start = min(self._read.get(key, 0), length - 1)
        if not self._may_read(length - max(start, rows.start)):
            return None
        if start <= rows.start:
            self._context.remove(seq_id)
            start = rows.start + 1
        # Its own hidden states served for the draft only.
        elif not self._context.truncate(seq_id, start):
            self._give_up(sequence)
            return None
        index = 0
        while start < length:
            end = min(length, start + self._batch.capacity)
            self._batch.clear()
            index = self._batch.add(sequence.tokens.view(start, end), start, seq_id, outputs="last")
            self._batch.set_hidden(rows.view(start - 1, end - 1))
            if self._context.decode(self._batch) != DECODE_OK:
                self._give_up(sequence)
                return None
            self._room -= end - start
            start = self._read[key] = end
        self._last = self._context.hidden(index, index + 1).copy()
        return self._context.logits(index)

    def _step(self, sequence: Sequence, token: int, position: int) -> Floats | None:
        self._batch.clear()
        index = self._batch.add_one(token, position, self._ids[id(sequence)])
        self._batch.set_hidden(self._last)
        if self._context.decode(self._batch) != DECODE_OK:
            return None
        self._last = self._context.hidden(index, index + 1).copy()
        return self._context.logits(index)

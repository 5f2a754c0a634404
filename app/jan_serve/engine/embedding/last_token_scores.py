"""Scores of a head that reads the last token of a causal model: inputs in pieces, their common prefix once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from jan_serve.engine.embedding.input_pooling import MAX_SEQUENCES, Decode, EmbedJob, GrowingContext
from jan_serve.engine.llama.context import Batch, LlamaContext
from jan_serve.engine.tokens import Tokens, shared_prefix

PREFIX: Final = MAX_SEQUENCES
"""The sequence of the common prefix; those of the inputs are below it."""
GROUP_TOKENS: Final = 2048
"""Most tokens of the inputs that are in the cache at once, unless a single one is longer."""


class LastTokenScores:
    """llama.cpp computes the head, and a row of the vocabulary, for each token of a context that embeds. So all tokens
    but the last one of each input are read without embeddings.
    """

    def __init__(self, create: Callable[[int], LlamaContext], size: int, piece_tokens: int) -> None:
        """create: makes a context of this many cells and MAX_SEQUENCES + 1 sequences; raises InsufficientMemory.

        size: scores of an input. piece_tokens: max tokens of a batch.
        """
        self._batch = Batch(max(piece_tokens, MAX_SEQUENCES))
        self._contexts = GrowingContext(create, self._batch.capacity)
        self._size = size

    def advance(self, job: EmbedJob, room: int, decode: Decode) -> None:
        """Compute the next batch: of the common prefix, of a group of inputs, or of their last tokens.

        room: max tokens, except of last tokens. Blocks and raises as `WholeInputs.advance`.
        """
        if job.num_shared is None:
            job.num_shared = shared_prefix(job.rows) if len(job.rows) > 1 else 0
            lengths = [len(row) - job.num_shared for row in job.rows]
            self._contexts.open(job.num_shared + group_cells(lengths) + 1).clear()
        context, batch = self._contexts.open(0), self._batch
        batch.clear()
        first, shared = len(job.vectors), job.num_shared
        room = min(room, batch.capacity)
        if job.num_shared_read < shared:
            context.set_embeddings(False)
            start = job.num_shared_read
            end = min(shared, start + room)
            batch.add(_ids(job.rows[0][start:end]), start, PREFIX, outputs="none")
            if decode(context, batch):
                job.num_shared_read = end
            return
        group = job.rows[first : first + group_size([len(row) - shared for row in job.rows[first:]])]
        if job.num_read == 0 and shared:
            for seq_id in range(len(group)):
                context.copy_all(PREFIX, seq_id)
        pieces = unread([len(row) - 1 for row in group], shared, job.num_read, room)
        if pieces:
            context.set_embeddings(False)
            for seq_id, start, end in pieces:
                batch.add(_ids(group[seq_id][start:end]), start, seq_id, outputs="none")
            if decode(context, batch):
                job.num_read += batch.size
            return
        context.set_embeddings(True)
        for seq_id, row in enumerate(group):
            batch.add(_ids(row[-1:]), len(row) - 1, seq_id, outputs="all")
        if decode(context, batch):
            job.vectors += [context.sequence_embedding(seq_id, self._size) for seq_id in range(len(group))]
            job.num_read = 0
            for seq_id in range(len(group)):
                context.remove(seq_id)


def group_size(lengths: Sequence[int]) -> int:
    """How many inputs of these lengths are in the cache at once: one at least. Pure."""
    total = 0
    for count, length in enumerate(lengths[:MAX_SEQUENCES]):
        total += length
        if total > GROUP_TOKENS and count:
            return count
    return min(len(lengths), MAX_SEQUENCES)


def group_cells(lengths: Sequence[int]) -> int:
    """Most cells that a group of these inputs takes. Pure."""
    return min(sum(lengths), max(GROUP_TOKENS, *lengths))


def unread(ends: Sequence[int], start: int, num_read: int, room: int) -> list[tuple[int, int, int]]:
    """The next `room` tokens of sequences that are read from `start` up to their ends, one after the other.

    Each part is a sequence, its first token and the end. num_read: tokens read of all together. Pure.
    """
    parts: list[tuple[int, int, int]] = []
    for seq_id, end in enumerate(ends):
        length = end - start
        if num_read >= length:
            num_read -= length
            continue
        first = start + num_read
        last = min(end, first + room)
        parts.append((seq_id, first, last))
        room -= last - first
        num_read = 0
        if not room:
            break
    return parts


def _ids(tokens: Sequence[int]) -> Tokens:
    return np.asarray(tokens, np.int32)

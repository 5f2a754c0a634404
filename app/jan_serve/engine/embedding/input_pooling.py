"""Vectors of inputs: whole, pooled by llama.cpp; in pieces, pooled here; or scored at their last token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from jan_serve.engine.llama.context import Batch, LlamaContext
from jan_serve.engine.tokens import Tokens, shared_prefix
from jan_serve.ipc.messages import EmbedRequest


class GrowingContext:
    """Makes a context on first use, and a larger one in its place where a job needs more cells. One thread. create:
    makes a context of this many cells; raises InsufficientMemory. least: cells at least: a context takes no longer
    batches than it has cells, and later jobs reuse it."""

    def __init__(self, create: Callable[[int], LlamaContext], least: int = 0) -> None:
        self._create = create
        self._least = least
        self.current: LlamaContext | None = None

    def open(self, cells: int) -> LlamaContext:
        """The context, empty if it is a new one. Raises InsufficientMemory."""
        cells = max(cells, self._least)
        if self.current is not None and self.current.n_ctx < cells:
            self.current.close()
            self.current = None
        if self.current is None:
            self.current = self._create(cells)
        return self.current


Floats = npt.NDArray[np.float32]

MAX_SEQUENCES = 16
TOGETHER = 256
"""Max tokens of several inputs in a batch. llama.cpp computes the attention between all tokens of a batch, of different
inputs too, and then masks it; the rest costs no less a token in larger batches."""

Decode = Callable[[LlamaContext, Batch], bool]
"""Compute a batch. False if it was interrupted: the job is no longer wanted."""


class EmbedJob(msgspec.Struct, eq=False):
    """A running request for embeddings. Only the engine thread changes it.

    rows: tokens of each input. vectors: finished ones, not normalised. num_read: tokens of the first input without a
    vector that the model has read; with a common prefix, of the inputs in the cache after it. total: their outputs so
    far, for pooling. num_shared: tokens of the common prefix that is read once; None until that is decided.
    is_open: whether the cache holds what these say, and nothing of other jobs.
    """

    request: EmbedRequest
    rows: list[list[int]]
    vectors: list[Floats] = msgspec.field(default_factory=list[Floats])
    num_read: int = 0
    total: Floats | None = None
    num_shared: int | None = None
    num_shared_read: int = 0
    is_open: bool = False

    @property
    def request_id(self) -> int:
        return self.request.id

    @property
    def client(self) -> str:
        return self.request.client

    @property
    def background(self) -> bool:
        return self.request.background

    @property
    def num_finished(self) -> int:
        return len(self.vectors)

    def pause(self) -> None:
        """Another job comes between: what is read of unfinished inputs, and of the common prefix, is read again."""
        self.num_read = self.num_shared_read = 0
        self.total = self.num_shared = None
        self.is_open = False

    @property
    def is_done(self) -> bool:
        return len(self.vectors) == len(self.rows)

    @property
    def prompt_tokens(self) -> int:
        return sum(len(row) for row in self.rows)


def num_together(lengths: Sequence[int], capacity: int) -> int:
    """How many of the first inputs, in tokens, a batch holds: one at least, more within TOGETHER and its capacity."""
    room = min(TOGETHER, capacity)
    return max(1, sum(total <= room for total in accumulate(lengths)))


class WholeInputs:
    """Every token attends to all others: an input is computed in one batch, several short inputs together. llama.cpp
    pools them (mean, cls, last) or scores them (rank)."""

    def __init__(self, create: Callable[[int], LlamaContext], n_ctx: int, size: int) -> None:
        """create: see GrowingContext. n_ctx: max tokens of an input. size: values of a vector."""
        self._contexts = GrowingContext(create)
        self._n_ctx = n_ctx
        self._size = size
        self._batch = Batch(n_ctx)

    def advance(self, job: EmbedJob, room: int, decode: Decode) -> None:
        """Compute the next batch; an input cannot be cut to `room`. Blocks for the batch. Raises the errors of
        `decode`, and InsufficientMemory when it creates a context."""
        context, batch = self._contexts.open(self._n_ctx), self._batch
        batch.clear()
        context.clear()
        first = len(job.vectors)
        lengths = [len(row) for row in job.rows[first : first + MAX_SEQUENCES]]
        count = num_together(lengths, batch.capacity)
        for seq_id, row in enumerate(job.rows[first : first + count]):
            batch.add(_ids(row), 0, seq_id, outputs="all")
        if decode(context, batch):
            job.vectors += [context.sequence_embedding(seq_id, self._size) for seq_id in range(count)]


class InputsInPieces:
    """Causal attention: an input is read in pieces over the cache, and pooled here. The context grows with the longest
    input so far; its buffers hold one batch, however long the input is."""

    def __init__(
        self, create: Callable[[int], LlamaContext], pooling: str, size: int, piece_tokens: int
    ) -> None:
        """pooling: mean, cls or last. size: values of a vector. piece_tokens: max tokens of a batch."""
        self._contexts = GrowingContext(create)
        self._batch = Batch(piece_tokens)
        self._pooling = pooling
        self._size = size

    def advance(self, job: EmbedJob, room: int, decode: Decode) -> None:
        """Compute the next batch, of `room` tokens at most. Blocks and raises as `WholeInputs.advance`."""
        batch = self._batch
        # A batch holds the rest of one input and whole further inputs.
        context = self._contexts.open(max(len(row) for row in job.rows) + batch.capacity)
        if not job.is_open:
            context.clear()
            job.is_open = True
        first = len(job.vectors)
        rows = job.rows[first : first + MAX_SEQUENCES]
        pieces = unread([len(row) for row in rows], 0, job.num_read, min(room, batch.capacity))
        batch.clear()
        for number, start, end in pieces:
            batch.add(_ids(rows[number][start:end]), start, (first + number) % MAX_SEQUENCES, outputs="all")
        if not decode(context, batch):
            return
        outputs = context.token_embeddings(batch.size, self._size)
        for number, start, end in pieces:
            self._add(job, outputs[: end - start])
            outputs = outputs[end - start :]
            if end == len(rows[number]):
                context.remove((first + number) % MAX_SEQUENCES)

    def _add(self, job: EmbedJob, outputs: Floats) -> None:
        """Pool the outputs of the next tokens of an input, shape (tokens, size); append its vector after the last."""
        total = job.total
        if self._pooling == "mean":
            sums: Floats = outputs.sum(axis=0, dtype=np.float32)
            total = sums if total is None else total + sums
        elif self._pooling == "last" or total is None:
            total = outputs[-1 if self._pooling == "last" else 0].copy()
        job.total, job.num_read = total, job.num_read + len(outputs)
        length = len(job.rows[len(job.vectors)])
        if job.num_read == length:
            job.vectors.append(total / np.float32(length) if self._pooling == "mean" else total)
            job.num_read, job.total = 0, None


PREFIX: Final = MAX_SEQUENCES  # the sequence of the common prefix; those of the inputs are below it
GROUP_TOKENS: Final = 2048
"""Most tokens of the inputs that are in the cache at once, unless a single one is longer."""


class LastTokenScores:
    """llama.cpp computes the head, and a row of the vocabulary, for each token of a context that embeds. So all tokens
    but the last one of each input are read without embeddings."""

    def __init__(self, create: Callable[[int], LlamaContext], size: int, piece_tokens: int) -> None:
        """create: see GrowingContext, with MAX_SEQUENCES + 1 sequences. size: scores of an input."""
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
    """The next `room` tokens of sequences that are read from `start` up to their ends, one after the other. Each part
    is the number of a sequence, its first token and the end. num_read: tokens read of all together. Pure."""
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

"""The part of a step that computes cells of images and sound. For the engine thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items

from jan_serve.engine.llama.context import EmbeddingBatch, LlamaContext
from jan_serve.engine.llama.projector import Embeddings, Positions
from jan_serve.engine.media.encoder import MediaEncoder
from jan_serve.engine.sequence import PlanItem, Sequence, SequenceStatus
from jan_serve.errors import JanServeError

_AHEAD = 2
"""Chunks of a sequence that are encoded or held at once: the current one, and the next."""


class MediaSteps:
    """Has chunks encoded ahead of the steps that need them, and makes batches of their embeddings."""

    def __init__(self, encoder: MediaEncoder | None, context: LlamaContext) -> None:
        self._encoder = encoder
        self._context = context
        self._owners: set[int] = set()
        self.is_waiting = False
        """Whether a sequence of the last `ready` waits for the encoder."""

    @property
    def encoded_total(self) -> int:
        return 0 if self._encoder is None else self._encoder.encoded_total

    @property
    def reused_total(self) -> int:
        return 0 if self._encoder is None else self._encoder.reused_total

    def ready(
        self, running: list[Sequence], fail: Callable[[Sequence, JanServeError], None]
    ) -> list[Sequence]:
        """The sequences that can take part in a step now. Those whose images could not be encoded `fail`."""
        self.is_waiting = False
        if self._encoder is None or not any(sequence.media for sequence in running):
            return running
        found: list[Sequence] = []
        for sequence in list(running):
            if sequence.status is not SequenceStatus.RUNNING:
                continue  # its request has just failed
            try:
                waits = sequence.is_prefilling and not self._is_ready(self._encoder, sequence)
            except JanServeError as error:
                fail(sequence, error)
                continue
            self.is_waiting = self.is_waiting or waits
            if not waits:
                found.append(sequence)
        return [sequence for sequence in found if sequence.status is SequenceStatus.RUNNING]

    def _is_ready(self, encoder: MediaEncoder, sequence: Sequence) -> bool:
        """Whether its next cells need no embeddings, or those are ready. Has the next chunks encoded."""
        chunks = sequence.media.chunks_from(sequence.num_computed, _AHEAD)
        if chunks:
            self._owners.add(id(sequence))
        results = [encoder.want(id(sequence), chunk) for chunk in chunks]
        current = sequence.media.chunk_at(sequence.num_computed)
        return current is None or results[0] is not None

    def batches(self, items: Iterable[PlanItem]) -> list[tuple[list[PlanItem], EmbeddingBatch]]:
        """Batches of chunks that are ready, each as large as the context takes."""
        groups: list[list[PlanItem]] = []
        room = 0
        for item in items:
            chunk = item.sequence.media.chunk_at(item.sequence.num_computed)
            assert chunk is not None
            if item.count > room:
                groups.append([])
                # Cells that attend to each other must be in one micro-batch.
                room = self._context.n_ubatch if chunk.is_whole else self._context.n_batch
            groups[-1].append(item)
            room -= item.count
        return [(group, self._batch(group)) for group in groups]

    def _batch(self, items: Items[PlanItem]) -> EmbeddingBatch:
        assert self._encoder is not None
        rows: list[Embeddings] = []
        positions: list[Positions] = []
        is_causal = True
        for item in items:
            sequence = item.sequence
            chunk = sequence.media.chunk_at(sequence.num_computed)
            assert chunk is not None
            embeddings = self._encoder.want(id(sequence), chunk)
            assert embeddings is not None
            first = sequence.num_computed - chunk.start
            part = slice(first, first + item.count)
            is_causal = not chunk.is_whole
            rows.append(embeddings[part])
            positions.append(chunk.positions[:, part])
        seq_ids = [item.sequence.seq_id for item in items]
        return EmbeddingBatch(rows, positions, seq_ids, is_causal=is_causal)

    def computed(self, sequence: Sequence) -> None:
        """Its cells have grown: give back the embeddings of a chunk that is complete."""
        if self._encoder is None:
            return
        [last] = sequence.media.chunks_from(sequence.num_computed - 1, 1)
        if last.end == sequence.num_computed:
            self._encoder.release(id(sequence), last)

    def forget(self, sequence: Sequence) -> None:
        """Give back all embeddings of a sequence that runs no more."""
        if self._encoder is not None and id(sequence) in self._owners:
            self._owners.discard(id(sequence))
            self._encoder.forget(id(sequence))

"""Encodes images and sound in a thread of its own, ahead of the steps that compute their cells."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Items
from contextlib import AbstractContextManager, ExitStack
from typing import Final

import msgspec
import psutil

from jan_serve.core.messages import MediaPiece
from jan_serve.engine.llama.context import EmbeddingBatch, LlamaContext
from jan_serve.engine.llama.projector import Embeddings, Positions
from jan_serve.engine.prompt_media import MediaChunk
from jan_serve.engine.sequence import PlanItem, Sequence, SequenceStatus
from jan_serve.errors import JanServeError, shortage

_MAX_CACHE_BYTES = 512 * 2**20


def embeddings_bytes() -> int:
    """Bytes of embeddings to keep, by the memory of this machine."""
    return min(_MAX_CACHE_BYTES, psutil.virtual_memory().total // 64)


EncodeChunk = Callable[[int], Embeddings]  # encodes the chunk of this number, of one piece

OpenPiece = Callable[[MediaPiece], AbstractContextManager[EncodeChunk]]


class _Job(msgspec.Struct, eq=False):
    chunk: MediaChunk
    owners: set[int] = msgspec.field(default_factory=set[int])
    result: Embeddings | None = None
    error: JanServeError | None = None


_MOST_IN_A_ROW: Final = 4
"""Chunks of one piece while another one waits: preparing a piece again takes time, and a long sound has many chunks."""


class MediaEncoder:
    """Jobs in the order in which they were asked for. Any thread; no method but `run` blocks for an encoding.

    owner: any number that is one asker's, such as the id of a sequence.
    """

    def __init__(self, open_piece: OpenPiece, limit_bytes: int, on_done: Callable[[], None]) -> None:
        """limit_bytes: of the cache. on_done: called by the encoding thread after each chunk; must not block."""
        self._open = open_piece
        self._limit = limit_bytes
        self._on_done = on_done
        self._changed = threading.Condition()
        self._jobs: dict[bytes, _Job] = {}
        self._running: _Job | None = None
        self._cache: OrderedDict[bytes, Embeddings] = OrderedDict()
        self._cached_bytes = 0
        self.encoded_total = self.reused_total = 0

    def want(self, owner: int, chunk: MediaChunk) -> Embeddings | None:
        """The embeddings of a chunk; None until they are ready. The first call queues it. Raises what encoding raised.
        They are held until `release` or `forget`."""
        with self._changed:
            job = self._jobs.get(chunk.key)
            if job is None:
                if (found := self._cache.get(chunk.key)) is not None:
                    self._cache.move_to_end(chunk.key)
                    self.reused_total += 1
                job = self._jobs[chunk.key] = _Job(chunk, result=found)
                self._changed.notify()
            job.owners.add(owner)
            if job.error is not None:
                raise job.error
            return job.result

    def release(self, owner: int, chunk: MediaChunk) -> None:
        """The owner has used the embeddings of this chunk."""
        with self._changed:
            self._leave(owner, chunk.key)

    def forget(self, owner: int) -> None:
        """The owner wants nothing any more. A chunk that nobody else wants is not begun."""
        with self._changed:
            for key in [key for key, job in self._jobs.items() if owner in job.owners]:
                self._leave(owner, key)

    def run(self) -> None:
        """Encode for ever: the body of the thread."""
        while True:
            self._encode_piece(self._wait())

    def _encode_piece(self, piece: MediaPiece) -> None:
        """Encode the wanted chunks of a piece, which is prepared once for as many as may follow each other."""
        with ExitStack() as stack:
            encode: EncodeChunk | None = None
            encoded = 0
            while (job := self._next(piece, encoded)) is not None:
                try:
                    if encode is None:
                        encode = stack.enter_context(self._open(piece))
                    encoded += 1
                    self._finish(job, encode(job.chunk.number))
                except JanServeError as error:
                    self._finish(job, error)
                except Exception as error:
                    if (lacking := shortage(error)) is None:
                        raise
                    self._finish(job, lacking)

    def _wait(self) -> MediaPiece:
        """The piece of the oldest job that is not done."""
        with self._changed:
            while (oldest := next(self._open_jobs(), None)) is None:
                self._changed.wait()
            return oldest.chunk.piece

    def _next(self, piece: MediaPiece, encoded: int) -> _Job | None:
        """Begin the next job of this piece, if any. After `_MOST_IN_A_ROW`, older ones of others come first."""
        with self._changed:
            oldest = next(self._open_jobs(), None)
            others_turn = encoded >= _MOST_IN_A_ROW and oldest is not None and oldest.chunk.piece is not piece
            jobs = () if others_turn else (job for job in self._open_jobs() if job.chunk.piece is piece)
            self._running = next(iter(jobs), None)
            return self._running

    def _open_jobs(self) -> Iterator[_Job]:
        """Those that are not done, the oldest first."""
        return (job for job in self._jobs.values() if job.result is None and job.error is None)

    def _finish(self, job: _Job, result: Embeddings | JanServeError) -> None:
        with self._changed:
            self._running = None
            if isinstance(result, JanServeError):
                job.error = result
            else:
                job.result = result
                self.encoded_total += 1
                self._keep(job.chunk.key, result)
            if not job.owners:
                del self._jobs[job.chunk.key]
        self._on_done()

    def _leave(self, owner: int, key: bytes) -> None:
        job = self._jobs.get(key)
        if job is not None:
            job.owners.discard(owner)
            if not job.owners and job is not self._running:
                del self._jobs[key]

    def _keep(self, key: bytes, result: Embeddings) -> None:
        if result.nbytes > self._limit or key in self._cache:
            return
        self._cache[key] = result
        self._cached_bytes += result.nbytes
        while self._cached_bytes > self._limit:
            _, oldest = self._cache.popitem(last=False)
            self._cached_bytes -= oldest.nbytes


_AHEAD = 2  # chunks of a sequence that are encoded or held at once: the current one, and the next


class MediaSteps:
    """Has chunks encoded ahead of the steps that need them, and makes batches of their embeddings."""

    def __init__(self, encoder: MediaEncoder | None, context: LlamaContext) -> None:
        self._encoder = encoder
        self._context = context
        self._owners: set[int] = set()
        self.is_waiting = False  # whether a sequence of the last `ready` waits for the encoder

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

"""The encoder's order, sharing, cache and cancellation, and steps of an engine whose sequences have images."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jan_serve.core.messages import ImagePiece, MediaPiece
from jan_serve.engine.cache.state_cache import StateCache
from jan_serve.engine.engine import Engine
from jan_serve.engine.llama.context import DECODE_ABORTED, DECODE_NO_CELLS, DECODE_OK, EmbeddingBatch
from jan_serve.engine.llama.projector import Embeddings
from jan_serve.engine.media_encoder import EncodeChunk, MediaEncoder
from jan_serve.engine.prompt_media import MediaChunk, PromptMedia, placeholders
from jan_serve.engine.sequence import Sequence
from jan_serve.engine.stats import PhaseClock
from jan_serve.errors import EngineFailure, InsufficientMemory
from jan_serve.ipc.messages import AdapterUse, EngineRequest, EngineSettings, Failed, RequestCompleted
from tests.unit.engine.fake_context import FakeContext, sequence_of

ROW = 4 * 8  # bytes of the embeddings of a chunk


def piece(name: str) -> ImagePiece:
    return ImagePiece(width=1, height=1, digest=name)


def chunk(of: MediaPiece, number: int = 0) -> MediaChunk:
    return MediaChunk(
        start=0,
        end=1,
        position=0,
        next_position=1,
        positions=np.zeros((1, 1), np.int32),
        key=f"{of.digest} {number}".encode(),
        piece=of,
        number=number,
    )


class Bench:
    """An encoder whose encodings each wait for `let`. log: what was opened, encoded and closed."""

    def __init__(self, limit_bytes: int = 1 << 20) -> None:
        self.log: list[str] = []
        self.failure: Exception | None = None
        self._may = threading.Semaphore(0)
        self._begun = threading.Semaphore(0)
        self._done = threading.Semaphore(0)
        self.encoder = MediaEncoder(self._open, limit_bytes, self._done.release)
        threading.Thread(target=self.encoder.run, daemon=True).start()

    @contextmanager
    def _open(self, of: MediaPiece) -> Generator[EncodeChunk]:
        self.log.append(f"open {of.digest}")
        self._digest = of.digest
        yield self.encode
        self.log.append(f"close {of.digest}")

    def encode(self, number: int) -> Embeddings:
        self.log.append(f"encode {self._digest}{number}")
        self._begun.release()
        assert self._may.acquire(timeout=30)
        if self.failure is not None:
            raise self.failure
        return np.full((1, 8), number, np.float32)

    def begun(self) -> None:
        assert self._begun.acquire(timeout=30)

    def let(self) -> None:
        """Let one encoding end, and wait for its end."""
        self._may.release()
        assert self._done.acquire(timeout=30)


def test_a_chunk_is_encoded_once_for_all_who_want_it_and_then_comes_from_the_cache() -> None:
    bench, one = Bench(), chunk(piece("a"))
    assert bench.encoder.want(1, one) is None
    bench.begun()
    assert bench.encoder.want(2, one) is None
    bench.let()
    first, second = bench.encoder.want(1, one), bench.encoder.want(2, one)
    assert first is not None and first is second
    bench.encoder.release(1, one)
    bench.encoder.forget(2)
    assert bench.encoder.want(3, one) is first
    assert (bench.encoder.encoded_total, bench.encoder.reused_total) == (1, 1)


def test_chunks_of_a_piece_are_encoded_together_and_pieces_in_order() -> None:
    bench, a, b = Bench(), piece("a"), piece("b")
    bench.encoder.want(1, chunk(a, 0))
    bench.begun()
    for each in (chunk(b, 0), chunk(a, 1)):
        bench.encoder.want(1, each)
    for _ in range(3):
        bench.let()
    assert bench.log[:6] == ["open a", "encode a0", "encode a1", "close a", "open b", "encode b0"]


def test_a_piece_of_many_chunks_lets_an_older_one_pass() -> None:
    bench, sound, picture = Bench(), piece("sound"), piece("picture")
    for number in range(3):
        bench.encoder.want(1, chunk(sound, number))
    bench.begun()
    bench.encoder.want(2, chunk(picture))
    for number in range(3, 7):  # each time, the sound has newer ones
        bench.encoder.want(1, chunk(sound, number))
    for _ in range(8):
        bench.let()
    assert [entry for entry in bench.log if entry.startswith("encode")][:5] == [
        *(f"encode sound{number}" for number in range(4)),
        "encode picture0",
    ]


def test_what_nobody_wants_any_more_is_not_begun() -> None:
    bench, a, b, c = Bench(), piece("a"), piece("b"), piece("c")
    for owner, each in ((1, a), (2, b), (3, c)):
        bench.encoder.want(owner, chunk(each))
    bench.begun()
    bench.encoder.forget(1)
    bench.encoder.forget(2)
    assert bench.encoder.want(4, chunk(a)) is None, "it still runs, and is not begun twice"
    bench.let()
    bench.begun()
    bench.let()
    assert bench.encoder.want(4, chunk(a)) is not None
    assert bench.encoder.want(3, chunk(c)) is not None
    assert [line for line in bench.log if line.startswith("encode")] == ["encode a0", "encode c0"]


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (EngineFailure("no"), EngineFailure),
        (MemoryError(), InsufficientMemory),
        (ImportError("x.so: failed to map segment from shared object"), InsufficientMemory),
    ],
)
def test_a_failure_reaches_all_who_wait_and_is_forgotten_with_them(
    failure: Exception, error: type[Exception]
) -> None:
    bench, one = Bench(), chunk(piece("a"))
    bench.failure = failure
    bench.encoder.want(1, one)
    bench.let()
    with pytest.raises(error):
        bench.encoder.want(1, one)
    bench.encoder.forget(1)
    bench.failure = None
    assert bench.encoder.want(2, one) is None
    bench.let()
    assert bench.encoder.want(2, one) is not None


def test_the_cache_drops_the_least_recently_used_and_what_is_wanted_stays() -> None:
    bench = Bench(limit_bytes=2 * ROW)
    chunks = [chunk(piece(name)) for name in "abc"]
    for owner, each in enumerate(chunks):
        bench.encoder.want(owner, each)
        bench.let()
    assert bench.encoder.want(0, chunks[0]) is not None, "held for its owner"
    for owner in range(3):
        bench.encoder.forget(owner)
    assert bench.encoder.want(9, chunks[1]) is not None
    assert bench.encoder.want(9, chunks[0]) is None
    bench.let()


WIDTH = 2
POSITIONS = 4  # of every image, whatever its cells


class SeeingContext(FakeContext):
    """`batches`: rows of each decode, and whether they are embeddings. truncated: positions."""

    n_ubatch = 64

    def __init__(self) -> None:
        super().__init__()
        self.model.vocab = SimpleNamespace(eog_ids=())
        self.abort_flag = SimpleNamespace(set=lambda: None, clear=lambda: None)
        self.batches: list[tuple[int, bool]] = []
        self.truncated: list[int] = []

    def decode(self, batch: Any, meanwhile: Any = None) -> int:
        code = super().decode(batch, meanwhile)
        if code == DECODE_OK:
            self.batches.append((batch.size, isinstance(batch, EmbeddingBatch)))
        return code

    def truncate(self, seq_id: int, length: int) -> bool:
        self.truncated.append(length)
        return super().truncate(seq_id, length)


class ToldEncoder:
    """Chunks are ready when a test says so."""

    encoded_total = reused_total = 0

    def __init__(self) -> None:
        self.ready: set[bytes] = set()
        self.broken: set[bytes] = set()
        self.held: set[tuple[int, bytes]] = set()

    def want(self, owner: int, chunk: MediaChunk) -> Embeddings | None:
        self.held.add((owner, chunk.key))
        if chunk.key in self.broken:
            raise EngineFailure("it cannot be encoded")
        return np.zeros((chunk.num_cells, WIDTH), np.float32) if chunk.key in self.ready else None

    def release(self, owner: int, chunk: MediaChunk) -> None:
        self.held.discard((owner, chunk.key))

    def forget(self, owner: int) -> None:
        self.held = {pair for pair in self.held if pair[0] != owner}


class StepBench:
    def __init__(self, **settings: Any) -> None:
        self.context = SeeingContext()
        self.encoder = ToldEncoder()
        context: Any = self.context
        encoder: Any = self.encoder
        resolved = EngineSettings(n_ctx=4096, parallel=4, cache_sequences=4, **settings)
        self.engine = Engine(
            context, resolved, phase=PhaseClock(), states=StateCache(1 << 20), encoder=encoder
        )

    def add(self, number: int, before: int, cells: int, after: int, *, is_whole: bool = False) -> Sequence:
        """A request of tokens, an image and tokens, which ends once its prompt is computed."""
        key = b"%d" % number
        start, end = before, before + cells
        chunk = MediaChunk(
            start=start,
            end=end,
            position=start,
            next_position=start + POSITIONS,
            positions=np.zeros((4, cells), np.int32),
            key=key,
            piece=ImagePiece(width=1, height=1, digest="ab"),
            number=0,
            is_whole=is_whole,
        )
        ids = [np.full(before, number, np.int32), placeholders(key, cells), np.full(after, number, np.int32)]
        return self.add_sequence(number, np.concatenate(ids), PromptMedia([chunk]))

    def add_sequence(
        self, number: int, ids: Any, media: PromptMedia | None = None, **fields: Any
    ) -> Sequence:
        sequence = sequence_of(ids)
        sequence.state.request = EngineRequest(id=number, prompt=("",), cache_salt="", **fields)
        sequence.max_new = 0
        if media is not None:
            sequence.media = media
        self.engine.add([sequence])
        return sequence


def test_a_sequence_waits_for_its_image_and_others_do_not() -> None:
    bench = StepBench()
    seeing = bench.add(1, 5, 16, 3)
    bench.engine.step()
    assert bench.context.batches == [(5, False)]
    assert bench.engine.step() == [] and not bench.engine.can_step
    bench.add_sequence(2, np.full(7, 2, np.int32))
    assert bench.engine.can_step, "a new request wakes it"
    assert isinstance(bench.engine.step()[-1], RequestCompleted)
    bench.encoder.ready.add(b"1")
    bench.engine.step()
    bench.engine.wake()
    bench.engine.step()
    assert bench.context.batches == [(5, False), (7, False), (16, True), (3, False)]
    assert seeing.num_computed == 24
    assert bench.encoder.held == set()


def test_a_sequence_under_another_adapter_does_not_wait_either() -> None:
    bench = StepBench()
    bench.add(1, 5, 16, 3)
    bench.engine.step()
    bench.engine.step()
    bench.add_sequence(2, np.full(7, 2, np.int32), adapters=(AdapterUse(0, 1.0),))
    assert isinstance(bench.engine.step()[-1], RequestCompleted)


@pytest.mark.parametrize(("is_whole", "expected"), [(False, [(90, True)]), (True, [(60, True), (30, True)])])
def test_cells_that_attend_to_each_other_fit_into_a_micro_batch(
    *, is_whole: bool, expected: list[tuple[int, bool]]
) -> None:
    bench = StepBench()
    for number in (1, 2, 3):
        bench.encoder.ready.add(b"%d" % number)
        bench.add(number, 1, 30, 3, is_whole=is_whole)
    bench.engine.step()
    bench.engine.step()
    assert bench.context.batches[1 : 1 + len(expected)] == expected


def test_an_image_that_cannot_be_encoded_fails_its_request_alone() -> None:
    bench = StepBench()
    bench.encoder.broken.add(b"1")
    bench.add(1, 5, 16, 3)
    bench.add_sequence(2, np.full(7, 2, np.int32))
    events = bench.engine.step()
    assert isinstance(events[0], Failed) and events[0].id == 1
    assert isinstance(events[-1], RequestCompleted) and events[-1].id == 2
    assert not bench.engine.has_work
    assert bench.encoder.held == set()


def test_an_image_that_was_computed_in_part_begins_again_after_an_interruption() -> None:
    bench = StepBench()
    bench.encoder.ready.add(b"1")
    sequence = bench.add(1, 5, 800, 3)
    bench.engine.step()
    bench.engine.step()
    assert sequence.num_computed == 5 + 512
    used = bench.engine.stats().cells_used
    bench.context.decode_codes = [DECODE_ABORTED]
    bench.engine.step()
    assert sequence.num_computed == 5 and bench.context.truncated == [5]
    assert bench.engine.stats().cells_used == used - 512
    for _ in range(3):
        bench.engine.step()
    assert sequence.num_computed == 808
    assert bench.engine.stats().cells_used == 808


def test_a_batch_of_images_without_cells_is_tried_again() -> None:
    bench = StepBench()
    bench.encoder.ready |= {b"1", b"2"}
    first, second = bench.add(1, 5, 16, 3), bench.add(2, 5, 16, 3)
    bench.engine.step()
    bench.context.decode_codes = [DECODE_NO_CELLS]
    assert bench.engine.step() == []
    assert (first.num_computed, second.num_computed) == (5, 0), "the last one gives its cells back"
    ended: list[int] = []
    for _ in range(8):
        ended += [event.id for event in bench.engine.step() if isinstance(event, RequestCompleted)]
    assert ended == [1, 2]
    assert bench.encoder.held == set()

"""The encoder's order, sharing, cache and cancellation, with an encoding that waits for the test."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np
import pytest

from jan_serve.core.messages import ImagePiece, MediaPiece
from jan_serve.engine.llama.projector import Embeddings
from jan_serve.engine.media.encoder import EncodeChunk, MediaEncoder
from jan_serve.engine.prompt_media import MediaChunk
from jan_serve.errors import EngineFailure, InsufficientMemory

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

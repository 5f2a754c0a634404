"""Steps of an engine whose sequences have images: who waits, what is in which batch, and batches that fail."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jan_serve.core.messages import ImagePiece
from jan_serve.engine.cache.state_cache import StateCache
from jan_serve.engine.engine import Engine
from jan_serve.engine.llama.context import DECODE_ABORTED, DECODE_NO_CELLS, DECODE_OK, EmbeddingBatch
from jan_serve.engine.llama.projector import Embeddings
from jan_serve.engine.prompt_media import MediaChunk, PromptMedia, placeholders
from jan_serve.engine.sequence import Sequence
from jan_serve.engine.stats import PhaseClock
from jan_serve.errors import EngineFailure
from jan_serve.ipc.messages import AdapterUse, EngineRequest, EngineSettings, Failed, RequestCompleted
from tests.unit.engine.fake_context import FakeContext, sequence_of

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

    def decode(self, batch: Any) -> int:
        code = super().decode(batch)
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


class Bench:
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
    bench = Bench()
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
    bench = Bench()
    bench.add(1, 5, 16, 3)
    bench.engine.step()
    bench.engine.step()
    bench.add_sequence(2, np.full(7, 2, np.int32), adapters=(AdapterUse(0, 1.0),))
    assert isinstance(bench.engine.step()[-1], RequestCompleted)


@pytest.mark.parametrize(("is_whole", "expected"), [(False, [(90, True)]), (True, [(60, True), (30, True)])])
def test_cells_that_attend_to_each_other_fit_into_a_micro_batch(
    *, is_whole: bool, expected: list[tuple[int, bool]]
) -> None:
    bench = Bench()
    for number in (1, 2, 3):
        bench.encoder.ready.add(b"%d" % number)
        bench.add(number, 1, 30, 3, is_whole=is_whole)
    bench.engine.step()
    bench.engine.step()
    assert bench.context.batches[1 : 1 + len(expected)] == expected


def test_an_image_that_cannot_be_encoded_fails_its_request_alone() -> None:
    bench = Bench()
    bench.encoder.broken.add(b"1")
    bench.add(1, 5, 16, 3)
    bench.add_sequence(2, np.full(7, 2, np.int32))
    events = bench.engine.step()
    assert isinstance(events[0], Failed) and events[0].id == 1
    assert isinstance(events[-1], RequestCompleted) and events[-1].id == 2
    assert not bench.engine.has_work
    assert bench.encoder.held == set()


def test_an_image_that_was_computed_in_part_begins_again_after_an_interruption() -> None:
    bench = Bench()
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
    bench = Bench()
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

"""A scheduler without an engine: sequences that cannot sample, and the moves that the engine makes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import numpy as np

from jan_serve.engine.cache.prefix_cache import CellCounter, PrefixCache
from jan_serve.engine.scheduling.scheduler import Scheduler
from jan_serve.engine.sequence import RequestState, Sequence, SequenceStatus, SequenceText
from jan_serve.engine.tokens import TokenBuffer
from jan_serve.ipc.messages import EngineRequest


def make(tokens: Iterable[int], *, request_id: int = 0, index: int = 0, **fields: Any) -> Sequence:
    """A waiting sequence of a request with these EngineRequest fields. Its sampler is never asked here."""
    buffer = TokenBuffer(list(tokens))
    request = EngineRequest(id=request_id, prompt=("",), cache_salt="", **fields)
    return Sequence(
        state=RequestState(request, len(buffer), arrived=0.0, unfinished=request.n),
        index=index,
        tokens=buffer,
        sampler=cast(Any, None),
        text=SequenceText((), include_stop=False, keep_tokens=False),
        max_new=16,
        seed=None,
    )


class Bench:
    """A scheduler with its cells and cache, and the moves that the engine makes between its decisions. lost: ids of
    sequences without the cells of their sliding window."""

    def __init__(
        self, *, parallel: int = 4, capacity: int = 100, whole_only: bool = False, **switches: Any
    ) -> None:
        self.cells = CellCounter(capacity)
        self.cache = PrefixCache(whole_only=whole_only)
        self.lost: set[int] = set()
        self.scheduler = Scheduler(
            parallel,
            self.cells,
            self.cache,
            reaches_back=lambda seq_id, _: seq_id not in self.lost,
            **switches,
        )
        self._next_id = 0

    def wait(self, *sequences: Sequence) -> None:
        self.scheduler.waiting.extend(sequences)

    def admit(self) -> Sequence | None:
        """One admission, carried out as the engine does."""
        admission = self.scheduler.next_admission()
        if admission is None:
            return None
        sequence, prefix = admission.sequence, admission.prefix
        sequence.seq_id = self.new_id()
        sequence.prefill_end = len(sequence.tokens)
        if prefix is not None:
            self.cells.share(prefix.seq_id, sequence.seq_id, prefix.length)
            sequence.num_computed = prefix.length
        sequence.status = SequenceStatus.RUNNING
        self.scheduler.waiting.remove(sequence)
        self.scheduler.running.append(sequence)
        return sequence

    def admit_all(self) -> list[Sequence]:
        admitted: list[Sequence] = []
        while (sequence := self.admit()) is not None:
            admitted.append(sequence)
        return admitted

    def compute(self, sequence: Sequence, count: int) -> None:
        """`count` of its tokens went through the model."""
        sequence.num_computed += count
        self.cells.extend(sequence.seq_id, count)

    def prefill(self, sequence: Sequence) -> None:
        """Its prompt is computed and a first token sampled."""
        self.compute(sequence, sequence.num_uncomputed)
        sequence.tokens.append(1)

    def finish(self, sequence: Sequence) -> None:
        self.scheduler.running.remove(sequence)
        self.cells.remove(sequence.seq_id)

    def pause(self, sequence: Sequence) -> None:
        """As the engine does."""
        self.finish(sequence)
        sequence.seq_id, sequence.num_computed, sequence.prefill_end = -1, 0, 0
        self.scheduler.waiting.appendleft(sequence)

    def keep(self, tokens: Iterable[int]) -> int:
        """A finished sequence in the cache; its id."""
        ids = np.array(list(tokens), np.int32)
        seq_id = self.new_id()
        self.cells.extend(seq_id, len(ids))
        self.cache.add(seq_id, ids)
        return seq_id

    def new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def plan(
        self, max_tokens: int = 512, max_prefill: int = 512, each: int = 512
    ) -> list[tuple[Sequence, int, str]]:
        """each: max tokens of a prompt."""
        running = self.scheduler.running
        streams = [sequence for sequence in running if not sequence.is_prefilling]
        reads = [(sequence, each) for sequence in running if sequence.is_prefilling]
        items = self.scheduler.plan(max_tokens, max_prefill, streams, reads)
        return [(item.sequence, item.count, item.outputs) for item in items]


def prompt(start: int, length: int = 10) -> range:
    """Prompts with different starts share nothing."""
    return range(1000 * start, 1000 * start + length)

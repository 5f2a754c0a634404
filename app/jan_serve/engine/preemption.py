"""Running sequences make way: where a batch has no room for all, and after a decode that failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from jan_serve.engine.cache.cell_allocator import CellAllocator
from jan_serve.engine.drafting.drafter import Drafter
from jan_serve.engine.llama.context import DECODE_ABORTED, DECODE_NO_CELLS, DecodeFailure
from jan_serve.engine.media_encoder import MediaSteps
from jan_serve.engine.scheduling.scheduler import Scheduler
from jan_serve.engine.sequence import PlanItem, Sequence, SequenceStatus
from jan_serve.errors import EngineFailure, JanServeError

_TOO_LONG: Final = "the KV cache cannot hold this sequence"


class Preemption:
    """Preempts sequences of one context. For the engine thread."""

    def __init__(
        self,
        memory: CellAllocator,
        scheduler: Scheduler,
        drafter: Drafter,
        media: MediaSteps,
        *,
        flush: Callable[[], None],
        fail: Callable[[Sequence, JanServeError], None],
    ) -> None:
        """flush: sends the text that waits; called before what takes long. fail: ends the request of a sequence."""
        self._memory = memory
        self._scheduler = scheduler
        self._drafter = drafter
        self._media = media
        self._flush = flush
        self._fail = fail
        self._was_reset = False

    def make_room(self, plan: list[PlanItem]) -> list[PlanItem]:
        """Evict, then preempt, until the plan's cells are free. Preempted sequences leave the plan."""
        while plan and self._memory.cells.free < sum(item.count for item in plan):
            self._flush()
            if self._memory.evict_oldest():
                continue
            victim = self._scheduler.victim()
            if victim is None:
                # The context bounds one sequence; only a different count in llama.cpp leads here.
                self._fail(plan[0].sequence, EngineFailure(_TOO_LONG))
                return []
            self.preempt(victim)
            plan = [item for item in plan if item.sequence is not victim]
        return plan

    def preempt(self, sequence: Sequence, *, keeps: bool = False) -> None:
        """Free a running sequence's cells, or leave them to the cache. Later it is prefilled again and continues."""
        self._media.forget(sequence)
        self._scheduler.running.remove(sequence)
        self._drafter.forget(sequence)
        if keeps:
            self._memory.keep(sequence)
        else:
            self._memory.release(sequence.seq_id)
        sequence.status, sequence.seq_id = SequenceStatus.WAITING, -1
        sequence.num_computed = sequence.prefill_end = 0
        sequence.prompt_infos.clear()
        self._scheduler.waiting.appendleft(sequence)

    def recover(self, plan: list[PlanItem], code: int) -> None:
        """Handle a failed decode: the plan's sequences stay as they were, begin again, or one of them fails.

        Raises DecodeFailure for the second fatal one.
        """
        if code == DECODE_NO_CELLS:
            # Our count has room, so the cells are fragmented: evict the oldest cached sequence.
            victim = self._scheduler.victim()
            if self._memory.evict_oldest():
                pass
            elif victim is not None:
                self.preempt(victim)
            else:
                self._fail(plan[0].sequence, EngineFailure(_TOO_LONG))
        if code == DECODE_ABORTED:
            for item in plan:
                self._memory.rewind(item.sequence)
        if code in (DECODE_NO_CELLS, DECODE_ABORTED):
            return
        # Only once in a worker's life: a batch that always fails would be computed again and again.
        if self._was_reset:
            raise DecodeFailure(f"llama_decode failed with code {code}")
        self._was_reset = True
        # The memory is undefined: everything is computed again.
        for sequence in reversed(list(self._scheduler.running)):
            self.preempt(sequence)
        self._memory.reset()

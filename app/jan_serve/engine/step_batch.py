"""The batch of a step: filled from the scheduler's plan, and decoded until it is done or interrupted."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from jan_serve.engine.adapters import Adapters
from jan_serve.engine.llama.context import Batch, EmbeddingBatch, LlamaContext
from jan_serve.engine.sequence import PlanItem
from jan_serve.engine.stats import PhaseClock


class StepBatch:
    """One at a time, on the engine thread. can_stop: whether a prefill may end in the middle of its batch."""

    def __init__(
        self, context: LlamaContext, adapters: Adapters | None, phase: PhaseClock, *, can_stop: bool
    ) -> None:
        self._context = context
        self._adapters = adapters
        self._phase = phase
        self._can_stop = can_stop
        self._tokens = Batch(context.n_batch)
        self._lock = threading.Lock()
        self._prefilling: frozenset[int] = frozenset()

    @property
    def capacity(self) -> int:
        """Most tokens of a batch."""
        return self._tokens.capacity

    @property
    def size(self) -> int:
        """Tokens that `fill` put in."""
        return self._tokens.size

    def fill(self, plan: Sequence[PlanItem]) -> list[int]:
        """Returns the index of the row from which each item is sampled."""
        self._tokens.clear()
        return [self._add(item) for item in plan]

    def _add(self, item: PlanItem) -> int:
        s, start = item.sequence, item.sequence.num_computed
        position = s.position(start)
        if item.draft is not None:
            tokens = np.concatenate((s.tokens.view(start), item.draft.tokens))
            return self._tokens.add(tokens, position, s.seq_id, outputs="all") - len(item.draft.tokens)
        if item.count == 1 and item.outputs == "last":
            return self._tokens.add_one(s.tokens[start], position, s.seq_id)
        tokens = s.tokens.view(start, start + item.count)
        return self._tokens.add(tokens, position, s.seq_id, outputs=item.outputs)

    def decode(self, plan: Sequence[PlanItem], media: EmbeddingBatch | None = None) -> int:
        """Compute what `fill` put in, or else images and sound of the plan. Blocks. Returns a DECODE_* code."""
        with self._lock:
            self._context.abort_flag.clear()
            if self._can_stop:
                self._prefilling = frozenset(i.sequence.request.id for i in plan if not i.is_decode)
        self._phase.enter("decode")
        if self._adapters is not None:
            self._adapters.apply(self._context, plan[0].sequence.request.adapters)
        try:
            return self._context.decode(self._tokens if media is None else media)
        finally:
            with self._lock:
                self._prefilling = frozenset()
                self._context.abort_flag.clear()

    def interrupt(self, request_id: int) -> None:
        """Stop the current decode if it prefills this request. Thread-safe."""
        with self._lock:
            if request_id in self._prefilling:
                self._context.abort_flag.set()

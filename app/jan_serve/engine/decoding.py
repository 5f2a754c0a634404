"""Decodes under LoRA adapters, which an aborted request interrupts, and the batch of a step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from jan_serve.core.models import AdapterFacts
from jan_serve.engine.cache.state_identity import state_key
from jan_serve.engine.embedding.input_pooling import Decode
from jan_serve.engine.llama.context import (
    DECODE_NO_CELLS,
    DECODE_OK,
    Batch,
    DecodeFailure,
    EmbeddingBatch,
    LlamaContext,
)
from jan_serve.engine.llama.model import LlamaAdapter, LlamaModel
from jan_serve.engine.sequence import PlanItem
from jan_serve.engine.stats import PhaseClock
from jan_serve.engine.tokens import PrefixMark
from jan_serve.errors import EngineFailure, InvalidModel, InvalidRequest
from jan_serve.ipc.messages import AdapterFile, AdapterUse


class Adapters:
    """The loaded adapters, in the order of the settings. Must be created before the contexts of the model."""

    def __init__(self, model: LlamaModel, files: Sequence[AdapterFile]) -> None:
        """Load the files; blocks. Raises InvalidModel, which names the adapter."""
        self._loaded: list[LlamaAdapter] = []
        self._digests: list[str] = []
        for file in files:
            try:
                self._digests.append(state_key([Path(file.path)]))
            except OSError as error:
                raise InvalidModel(
                    f"The LoRA adapter `{file.name}` cannot be read: {error.strerror}."
                ) from None
            self._loaded.append(LlamaAdapter(model, file.path, file.name))
        self.facts = tuple(AdapterFacts(file.name, file.scale) for file in files)

    def apply(self, context: LlamaContext, uses: Sequence[AdapterUse]) -> None:
        """Use exactly these adapters for the next decodes of the context."""
        if self._loaded:
            context.set_adapters(
                [self._loaded[use.index].pointer for use in uses], [use.scale for use in uses]
            )

    def mark(self, uses: Sequence[AdapterUse], salt: str) -> PrefixMark | None:
        """Separates prefixes under these adapters and this salt from all others; None for neither. Any thread. Raises
        InvalidRequest."""
        for use in uses:
            if not 0 <= use.index < len(self._loaded):
                raise InvalidRequest(f"lora: there is no adapter {use.index}", param="lora")
        parts = [f"{self._digests[use.index]} {use.scale!r}" for use in uses]
        if salt:
            parts.append(f"salt {salt}")
        return PrefixMark.of(*parts) if parts else None


class InterruptibleDecode:
    """One at a time, on the engine thread."""

    def __init__(self, adapters: Adapters | None = None) -> None:
        self._adapters = adapters
        self._lock = threading.Lock()
        self._running: tuple[Collection[int], LlamaContext] | None = None
        self._makes_way = False

    def check(self, uses: Sequence[AdapterUse]) -> None:
        """Any thread. Raises InvalidRequest for an unknown adapter."""
        if self._adapters is not None:
            self._adapters.mark(uses, "")

    def run(
        self,
        request_ids: Collection[int],
        uses: Sequence[AdapterUse],
        context: LlamaContext,
        batch: Batch | EmbeddingBatch,
        *,
        makes_way: bool = False,
        meanwhile: Callable[[], None] | None = None,
    ) -> int:
        """Compute a batch, which an abort of these requests stops; blocks. Returns a DECODE_* code.

        makes_way: `make_way` stops it, too.
        """
        with self._lock:
            context.abort_flag.clear()
            self._running, self._makes_way = (request_ids, context), makes_way
        try:
            if self._adapters is not None:
                self._adapters.apply(context, uses)
            return context.decode(batch, meanwhile)
        finally:
            with self._lock:
                self._running = None
                context.abort_flag.clear()

    def embeds(self, request_id: int, uses: Sequence[AdapterUse], phase: PhaseClock) -> Decode:
        """A decode of one request's batches, beside the step's. It blocks, and raises EngineFailure, DecodeFailure."""

        def decode(context: LlamaContext, batch: Batch) -> bool:
            phase.enter("embed")
            code = self.run((request_id,), uses, context, batch)
            if code == DECODE_NO_CELLS:
                raise EngineFailure("The KV cache cannot hold this input.")
            if code < DECODE_OK:
                raise DecodeFailure(f"llama_decode failed with code {code}")
            return code == DECODE_OK

        return decode

    def interrupt(self, request_id: int) -> None:
        """Stop the current decode if it is for this request. Thread-safe; the caller must then drop the request."""
        with self._lock:
            if self._running is not None and request_id in self._running[0]:
                self._running[1].abort_flag.set()

    def make_way(self) -> None:
        """Stop the current decode if it may be stopped for another. Thread-safe."""
        with self._lock:
            if self._running is not None and self._makes_way:
                self._running[1].abort_flag.set()


class StepBatch:
    """One at a time, on the engine thread. can_stop: whether a prefill may end in the middle of its batch."""

    def __init__(
        self, context: LlamaContext, adapters: Adapters | None, phase: PhaseClock, *, can_stop: bool
    ) -> None:
        self._context = context
        self._phase = phase
        self.can_stop: Final = can_stop
        self._decode = InterruptibleDecode(adapters)
        self.make_way: Final = self._decode.make_way
        """Stop the current decode if it only reads prompts in the background. Thread-safe."""
        self.interrupt: Final = self._decode.interrupt
        """Stop the current decode if it prefills this request. Thread-safe."""
        self._tokens = Batch(context.n_batch)

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

    def decode(
        self,
        plan: Sequence[PlanItem],
        media: EmbeddingBatch | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> int:
        """Compute what `fill` put in, or else images and sound of the plan. Blocks. Returns a DECODE_* code. meanwhile:
        see LlamaContext.decode."""
        prefilling = [i.sequence.request.id for i in plan if self.can_stop and not i.is_decode]
        makes_way = bool(prefilling) and all(item.sequence.background for item in plan)
        self._phase.enter("decode")
        uses = plan[0].sequence.request.adapters
        batch = self._tokens if media is None else media
        return self._decode.run(
            prefilling, uses, self._context, batch, makes_way=makes_way, meanwhile=meanwhile
        )

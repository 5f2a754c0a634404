"""Decodes of contexts beside the engine's own, which an aborted request interrupts."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from jan_serve.engine.adapters import Adapters
from jan_serve.engine.llama.context import DECODE_ABORTED, DECODE_OK, Batch, LlamaContext
from jan_serve.engine.phase import PhaseClock
from jan_serve.errors import EngineFailure
from jan_serve.ipc.messages import AdapterUse


class InterruptibleDecode:
    """One at a time, on the engine thread."""

    def __init__(self, adapters: Adapters | None = None) -> None:
        self._adapters = adapters
        self._lock = threading.Lock()
        self._running: tuple[int, LlamaContext] | None = None  # request and context of the current decode

    def check(self, uses: Sequence[AdapterUse]) -> None:
        """Any thread. Raises InvalidRequest for an unknown adapter."""
        if self._adapters is not None:
            self._adapters.mark(uses, "")

    def run(
        self,
        request_id: int,
        uses: Sequence[AdapterUse],
        context: LlamaContext,
        batch: Batch,
        phase: PhaseClock,
    ) -> bool:
        """Compute a batch; blocks. False if it was interrupted: the request is no longer wanted.

        Raises EngineFailure.
        """
        if self._adapters is not None:
            self._adapters.apply(context, uses)
        phase.enter("embed")
        with self._lock:
            context.abort_flag.clear()
            self._running = request_id, context
        try:
            code = context.decode(batch)
        finally:
            with self._lock:
                self._running = None
        if code not in (DECODE_OK, DECODE_ABORTED):
            raise EngineFailure(f"llama.cpp could not compute this input (code {code})")
        return code == DECODE_OK

    def interrupt(self, request_id: int) -> None:
        """Stop the current decode if it is for this request. Thread-safe; the caller must then drop the job."""
        with self._lock:
            if self._running is not None and self._running[0] == request_id:
                self._running[1].abort_flag.set()
